"""Time training steps of the example inside an MPI world: `steps.py TRAIN.PY BATCH STEPS`; rank 0 prints the seconds.

The batch is split over the ranks, so that the work is the same for any number of them. Making data and weights
is not timed. The best of three is told: what disturbs a machine only ever makes it slower.
"""

import runpy
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
train = runpy.run_path(sys.argv[1], run_name="train")
size, count = int(sys.argv[2]), int(sys.argv[3])
part = train["shard"](train["make_batch"](7, 0, size), comm.rank, comm.size)


def work(steps: int) -> None:
    """Do so many steps, together."""
    train["steps"](part, 7, steps, lambda values: train["sum_over_ranks"](comm, values))
    train["patiently"](comm.Ibarrier(), 20e-6)


work(1)
taken = []
for _ in range(3):
    start = time.perf_counter()
    work(count)
    taken.append(time.perf_counter() - start)
if comm.rank == 0:
    print(f"seconds={min(taken):.6f}", flush=True)
