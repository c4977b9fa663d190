"""Jobs in every phase and of every kind, for the states of the page: the pictures and the tests that go through all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.support import PATIENCE, running

from mpijob import Client, MPIJob
from mpijob.model import Code, Elastic, Resources

SMALL = Resources(cpu="500m", memory="128Mi")
TRAIN = """\
import math, os, sys, time
from mpijob.client.integrations.tfevents import event, record
rank, steps, rate = int(os.environ["MPIJOB_RANK"]), int(sys.argv[1]), float(sys.argv[2])
os.makedirs("logs", exist_ok=True)
with open(f"logs/events.out.tfevents.{rank}.host", "wb") as file:
    for step in range(1, steps + 1):
        slow = step > 100 and sys.argv[3:] == ["--slow"]
        loss = 2.3 * math.exp(-rate * step / 60) + 0.06 * math.sin(step / 3) + 0.2 / rate
        file.write(record(event(time.time(), step, {"loss": loss, "grad_norm": 3 / (1 + step / 9)})))
        if rank == 0:
            print(f"step {step}/{steps} loss={loss:.4f} accuracy={1 - loss / 2.9:.4f} lr=0.1", flush=True)
        if step % 50 == 0 and rank == 1:
            print("WARNING slow batch: 1.9 s", file=sys.stderr, flush=True)
        sum(range(60_000))
        time.sleep(8 if slow else 0.02)
"""
HUNGRY = """\
import os, time
rank, kept = int(os.environ["MPIJOB_RANK"]), []
for batch in range(1, 40):
    print(f"batch {batch}/40 loss={2 / batch:.3f}", flush=True)
    if rank == 2:
        kept.append(b"x" * (8 << 20))
    time.sleep(0.05)
"""
TALKS = """\
import time
from mpi4py import MPI
world = MPI.COMM_WORLD
for _ in range(30):
    world.allreduce(bytearray(4096) and 1)
    world.sendrecv(bytearray(1 << world.rank + 10), (world.rank + 1) % world.size, source=(world.rank - 1) % world.size)
    world.Barrier()
    time.sleep(0.02)
"""
HANGS = """\
import time
from mpi4py import MPI
print("epoch 1", flush=True)
def reads_data(): time.sleep(3000)
if MPI.COMM_WORLD.rank == 1: reads_data()
MPI.COMM_WORLD.Barrier()
"""
PROGRAMS = {"train.py": TRAIN, "finetune.py": HUNGRY, "exchange.py": TALKS, "load.py": HANGS}
SLEEP = ("sleep", "3000")
STEPS = "mpirun -n 2 echo mesh is ready\nmpirun -n 2 sh -c 'sleep 1; echo solved'\nmpirun -n 1 echo report is written\n"


def a_job(name: str, *command: str, **fields: Any) -> MPIJob:
    """Return a job of two small workers."""
    fields = {"workers": 2, "grace_seconds": 1.0, "resources": SMALL, **fields}
    return MPIJob(name=name, command=command, **fields)


def a_program(name: str, program: str, *arguments: str, **fields: Any) -> MPIJob:
    """Return a job that runs one of the Python programs, which is a file of it."""
    return a_job(name, "python", program, *arguments, code=Code(files={program: PROGRAMS[program]}), **fields)


def arrange(client: Client) -> None:
    """Have a job in each phase; those that run do so until they are deleted."""
    os.environ["PATH"] = (
        f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # `python` is this one, with mpi4py
    )
    first = client.submit(a_program("tuned", "finetune.py", workers=3, owner="priya"))
    ended = [client.submit(job) for job in _ending()]
    first.wait(PATIENCE)
    first.retry(with_fix=1).wait(PATIENCE)
    for handle in ended:
        handle.wait(PATIENCE)
    for job in _endless():
        running(client, job)
    client.suspend("sweep-7")
    client.cancel("old-run")
    for job in _queued():
        client.submit(job)


def _ending() -> Iterator[MPIJob]:
    hello = 'echo "hello from rank $MPIJOB_RANK of $MPIJOB_WORLD"'
    note = "Fine-tuning with batch size 64. See the *team page*."
    yield a_job("hello", "sh", "-c", hello, labels={"team": "vision"})
    yield a_program("bert-16", "finetune.py", workers=4, owner="priya", description=note)
    yield a_job("typo", "sh", "-c", "pyhton3 train.py", owner="alex")
    for name, rate in (("resnet-a", "1"), ("resnet-b", "1.6")):
        yield a_program(name, "train.py", "120", rate, owner="priya", env={"RATE": rate})
    yield a_program("halo-exchange", "exchange.py", workers=4, profile_mpi=True)
    yield a_job("simulate", script="run.sh", code=Code(files={"run.sh": STEPS}))
    full = "echo no space left on device >&2; exit 28"
    yield a_job(
        "a-training-with-a-name-as-long-as-names-may-be-001",
        "sh",
        "-c",
        full,
        namespace="team-nlp",
        owner="maria",
    )


def _endless() -> Iterator[MPIJob]:
    yield a_program("resnet-50", "train.py", "400", "1", "--slow", workers=4, slots=2, owner="priya")
    yield a_program("stuck", "load.py")
    yield a_job("grows", *SLEEP, elastic=Elastic(min_workers=1, max_workers=4))
    yield a_job("sweep-7", *SLEEP, owner="alex")
    yield a_job("old-run", *SLEEP, owner="alex")


def _queued() -> Iterator[MPIJob]:
    yield a_job("llm-ft", *SLEEP, workers=16, owner="priya")
    yield a_job("evaluate", *SLEEP, workers=16, owner="maria")
