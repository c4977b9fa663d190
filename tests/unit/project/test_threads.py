"""A client that is used from several threads: also its very first call may be made by all of them at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Threads change places as often as possible: types that are worked out twice at once crash the interpreter.
FIRST_CALLS = """
import sys, threading
sys.setswitchinterval(1e-6)
from mpijob import Client, MPIJob
from mpijob.backends.memory import MemoryBackend
gate = threading.Barrier(8)
def submit(number):
    client = Client(MemoryBackend())
    gate.wait()
    client.run(MPIJob(name=f"job-{number}", workers=2, command=("echo", "hi")))
    done.append(number)
done = []
threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(done))
"""


@pytest.mark.thorough
def test_the_first_jobs_of_several_threads_may_be_submitted_at_once() -> None:
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
