"""Latency and bandwidth between two ranks, in the manner of the OSU micro-benchmarks (osu_latency, osu_bw).

Not the OSU programs themselves: those are built into an image, see the template osu-benchmarks. The same
columns, from mpi4py over plain buffers, so that two machines or two networks can be compared anywhere.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from mpi4py import MPI


def round_trips(world: MPI.Comm, size: int, rounds: int) -> list[float]:
    """Return the seconds of each round trip of a message."""
    data, other = np.zeros(size, dtype=np.uint8), 1 - world.rank
    taken = []
    for _ in range(rounds):
        begin = MPI.Wtime()
        if world.rank == 0:
            world.Send(data, other)
            world.Recv(data, other)
        else:
            world.Recv(data, other)
            world.Send(data, other)
        taken.append(MPI.Wtime() - begin)
    return taken


def main() -> None:
    """Measure sizes from one byte to the largest, and print a table as OSU's programs do."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--largest", type=int, default=1 << 20, help="bytes")
    parser.add_argument("--rounds", type=int, default=50)
    args, world = parser.parse_args(), MPI.COMM_WORLD
    if world.size != 2:
        raise SystemExit(f"two ranks are needed, there are {world.size}")
    if world.rank == 0:
        print(f"{'# Size':<12}{'Latency (us)':>14}{'Bandwidth (MB/s)':>18}", flush=True)
    size = 1
    while size <= args.largest:
        round_trips(world, size, 5)  # warm up
        half = statistics.median(round_trips(world, size, args.rounds)) / 2
        if world.rank == 0:
            print(f"{size:<12}{half * 1e6:>14.2f}{size / half / 1e6:>18.6g}", flush=True)
        size *= 4


if __name__ == "__main__":
    main()
