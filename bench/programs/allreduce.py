"""Time allreduces of 8 MB and of 8 bytes; rank 0 prints the medians as JSON, in seconds."""

import json
import statistics
import sys
import time

import numpy as np
from mpi4py import MPI


def seconds(comm: MPI.Comm, doubles: int, times: int) -> float:
    mine, total = np.ones(doubles), np.empty(doubles)
    taken = []
    for _ in range(times):
        comm.Barrier()
        start = time.perf_counter()
        comm.Allreduce(mine, total)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    comm, large, small = MPI.COMM_WORLD, int(sys.argv[1]), int(sys.argv[2])
    seconds(comm, 1_000_000, 3)
    result = {"large": seconds(comm, 1_000_000, large), "small": seconds(comm, 1, small)}
    if comm.rank == 0:
        print(json.dumps(result), flush=True)


main()
