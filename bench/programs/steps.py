"""Time training steps of the example inside an MPI world: `steps.py TRAIN.PY BATCH STEPS`; rank 0 prints the seconds.

The batch is split over the ranks, so that the work is the same for any number of them. Each rank goes through its
part in chunks of one size, and adds up their gradients: with whole parts, one rank's arrays would no longer fit the
caches that those of many ranks fit, and many ranks would look faster than they are. Making data and weights is not
timed. The best of three is told: what disturbs a machine only ever makes it slower.
"""

import runpy
import sys
import time

from mpi4py import MPI

CHUNK = 256
comm = MPI.COMM_WORLD
train = runpy.run_path(sys.argv[1], run_name="train")
size, count = int(sys.argv[2]), int(sys.argv[3])
points, classes = train["make_batch"](7, comm.rank, size // comm.size)  # each makes its own part
chunks = [(points[at : at + CHUNK], classes[at : at + CHUNK]) for at in range(0, len(points), CHUNK)]


def work(steps: int) -> None:
    """Do so many steps, together."""
    weights = train["start_weights"](7)
    momentum = [0.0 * weight for weight in weights]
    for _ in range(steps):
        mine = sum(train["sums"](weights, chunk) for chunk in chunks)
        train["step"](weights, momentum, train["sum_over_ranks"](comm, mine), size, 0.0)
    train["patiently"](comm.Ibarrier(), 20e-6)


work(1)
taken = []
for _ in range(3):
    start = time.perf_counter()
    work(count)
    taken.append(time.perf_counter() - start)
if comm.rank == 0:
    print(f"seconds={min(taken):.6f}", flush=True)
