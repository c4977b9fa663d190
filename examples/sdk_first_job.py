"""A first job in the SDK: submit, wait, read what the ranks said."""

from mpijob import Client, MPIJob

with Client() as client:
    job = client.run(MPIJob(name="first", workers=2, command=["python", "-c", "print('hello')"]))
    for line in job.logs():
        print(line.source, line.text.decode())
