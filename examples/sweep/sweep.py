"""A sweep: one job, several learning rates, the best by what rank 0 said."""

from mpijob import Client, MPIJob
from mpijob.client.submit import array

PROGRAM = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
x, rate = 4.0, float(os.environ["RATE"])
for _ in range(20):
    x -= rate * world.allreduce(2 * x) / world.size
if world.rank == 0:
    print(f"loss={x * x:.6f}", flush=True)
"""

if __name__ == "__main__":
    job = MPIJob(name="sweep", workers=2, command=["python", "-m", "mpi4py", "-c", PROGRAM])
    found = {}
    with Client() as client:
        for one in array.expand(job, {"env.RATE": ["0.01", "0.1", "0.4"]}):
            last = [line.text.decode() for line in client.run(one).logs(ranks=[0])][-1]
            found[one.env["RATE"]] = float(last.removeprefix("loss="))
    best = min(found, key=lambda rate: found[rate])
    print(f"best rate {best} of {len(found)}")
