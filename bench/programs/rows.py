"""Train for so many seconds, compute-bound: `rows.py TRAIN.PY SECONDS [apart]`; rank 0 prints the rows a second.

Each step goes through a batch of one size, whatever the number of ranks, and each rank through its part of it in chunks
whose arrays fit a core's own cache. With `apart` the ranks compute the same and do not add up their gradients: how much
so many programs reach at once on this machine when talking costs nothing.
"""

import runpy
import sys
import time

import numpy as np
from mpi4py import MPI

BATCH, CHUNK = 131_072, 64
comm = MPI.COMM_WORLD
MPI.Pcontrol(0)
train = runpy.run_path(sys.argv[1], run_name="train")
seconds, apart = float(sys.argv[2]), sys.argv[3:] == ["apart"]
mine = BATCH // comm.size
points, classes = train["make_batch"](7, comm.rank, CHUNK * 8)
weights = train["start_weights"](7)
momentum = [np.zeros_like(weight) for weight in weights]


def step() -> None:
    """Do one step of training, together."""
    total = np.zeros(sum(weight.size for weight in weights) + 2)
    for done in range(0, mine, CHUNK):
        at = done % len(points)
        total += train["sums"](weights, (points[at : at + CHUNK], classes[at : at + CHUNK]))
    if not apart:
        comm.Allreduce(MPI.IN_PLACE, total)
    train["step"](weights, momentum, total, BATCH, 0.0)


for _ in range(2):  # the processor finds its speed
    step()
comm.Barrier()
start = time.perf_counter()
step()
count = comm.bcast(max(1, round(seconds / (time.perf_counter() - start))))
comm.Barrier()
MPI.Pcontrol(1)  # with a profile: the steps alone are looked at
start = time.perf_counter()
for _ in range(count):
    step()
own = time.perf_counter() - start
MPI.Pcontrol(0)
slowest = comm.allreduce(own, MPI.MAX)
if comm.rank == 0:
    print(f"rows={BATCH * count / slowest:.3f} seconds={slowest:.3f} steps={count}", flush=True)
