"""Train a small network data-parallel: each rank holds a part of every batch, gradients are summed over MPI.

The data is made from a seed, batch by batch, so any number of ranks sees the same batches and ends with
the same weights (float64; only the order of the sums differs). Start it with `python -m mpi4py train.py`,
which ends the whole job when one rank raises. The job file beside it runs it on four workers.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI

FEATURES, HIDDEN, CLASSES = 64, 256, 10
Weights = list[np.ndarray]
Batch = tuple[np.ndarray, np.ndarray]


def make_batch(seed: int, number: int, size: int) -> Batch:
    """Return batch `number` of the data: points, and the classes that a fixed random network gives them."""
    teacher = np.random.default_rng(seed)
    inner = teacher.normal(size=(FEATURES, 24)) / np.sqrt(FEATURES)
    outer = teacher.normal(size=(24, CLASSES))
    points = np.random.default_rng((seed, number)).normal(size=(size, FEATURES))
    return points, np.argmax(np.tanh(2 * points @ inner) @ outer, axis=1)


def shard(batch: Batch, rank: int, ranks: int) -> Batch:
    """Return the rows of a batch that belong to a rank; every row belongs to exactly one."""
    first, last = (len(batch[0]) * edge // ranks for edge in (rank, rank + 1))
    return batch[0][first:last].copy(), batch[1][first:last].copy()


def start_weights(seed: int) -> Weights:
    """Return the same small random weights on every rank."""
    generator = np.random.default_rng(seed + 1)
    return [
        generator.normal(size=(FEATURES, HIDDEN)) / np.sqrt(FEATURES),
        np.zeros(HIDDEN),
        generator.normal(size=(HIDDEN, CLASSES)) / np.sqrt(HIDDEN),
        np.zeros(CLASSES),
    ]


def forward(weights: Weights, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hidden values and the probability of each class."""
    hidden = np.tanh(points @ weights[0] + weights[1])
    scores = hidden @ weights[2] + weights[3]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def sums(weights: Weights, batch: Batch) -> np.ndarray:
    """Return gradient sums, loss sum and number of right answers of these rows, in one flat array."""
    points, classes = batch
    rows = np.arange(len(classes))
    hidden, chances = forward(weights, points)
    loss = -np.log(chances[rows, classes]).sum()
    right = (chances.argmax(axis=1) == classes).sum()
    chances[rows, classes] -= 1.0
    back = (chances @ weights[2].T) * (1.0 - hidden * hidden)
    gradients = (points.T @ back, back.sum(axis=0), hidden.T @ chances, chances.sum(axis=0))
    return np.concatenate([*(gradient.ravel() for gradient in gradients), (loss, right)])


def patiently(request: MPI.Request, pause_seconds: float) -> None:
    """Wait for a request without holding the core: ranks may outnumber cores."""
    while not request.Test():
        time.sleep(pause_seconds)


def sum_over_ranks(comm: MPI.Comm, values: np.ndarray) -> np.ndarray:
    """Return the sum of the ranks' arrays, on every rank."""
    total = np.empty_like(values)
    patiently(comm.Iallreduce(values, total), 20e-6)
    return total


def step(weights: Weights, momentum: Weights, total: np.ndarray, size: int, rate: float) -> None:
    """Move the weights by one step of gradient descent with momentum."""
    position = 0
    for weight, speed in zip(weights, momentum, strict=True):
        gradient = total[position : position + weight.size].reshape(weight.shape) / size
        position += weight.size
        speed *= 0.9
        speed -= rate * gradient
        weight += speed


def say(line: str) -> None:
    """Write a line in one piece, so that ranks which share a pipe do not mix theirs."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def train(comm: MPI.Comm, args: argparse.Namespace, shards: list[Batch]) -> Weights:
    """Return the trained weights; rank 0 tells each epoch."""
    weights = start_weights(args.seed)
    momentum = [np.zeros_like(weight) for weight in weights]
    seen = len(shards) * args.batch
    for epoch in range(1, args.epochs + 1):
        loss = right = 0.0
        for number in np.random.default_rng((args.seed, epoch)).permutation(len(shards)):
            total = sum_over_ranks(comm, sums(weights, shards[number]))
            step(weights, momentum, total, args.batch, args.rate)
            loss, right = loss + total[-2], right + total[-1]
        if comm.rank == 0:
            say(f"epoch={epoch} loss={loss / seen:.4f} accuracy={right / seen:.4f}")
    return weights


def test_accuracy(comm: MPI.Comm, args: argparse.Namespace, weights: Weights) -> float:
    """Return the share of right answers on a batch that the training has not seen."""
    unseen = make_batch(args.seed, args.samples // args.batch, args.batch)
    total = sum_over_ranks(comm, sums(weights, shard(unseen, comm.rank, comm.size)))
    return float(total[-1]) / args.batch


def seconds(work: Callable[[], object]) -> float:
    """Return how long a piece of work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def steps(batch: Batch, seed: int, count: int, add: Callable[[np.ndarray], np.ndarray]) -> None:
    """Do some training steps on one batch, with a way to add up the ranks' sums."""
    weights = start_weights(seed)
    momentum = [np.zeros_like(weight) for weight in weights]
    for _ in range(count):
        step(weights, momentum, add(sums(weights, batch)), len(batch[0]), 0.0)


def measure_scaling(comm: MPI.Comm, args: argparse.Namespace) -> tuple[float, float]:
    """Return the seconds of the same steps on rank 0 alone, and on all ranks together.

    Both are measured in turn, three times each, so that other load on the machine meets both. While
    rank 0 works alone the others sleep.
    """
    batch = make_batch(args.seed, 0, args.batch)
    part = shard(batch, comm.rank, comm.size)
    alone, together = [], []
    for _ in range(3):
        if comm.rank == 0:
            alone.append(seconds(lambda: steps(batch, args.seed, args.probe, lambda values: values)))
        patiently(comm.Ibarrier(), 2e-3)
        together.append(
            seconds(lambda: steps(part, args.seed, args.probe, lambda values: sum_over_ranks(comm, values)))
        )
        patiently(comm.Ibarrier(), 2e-3)
    return statistics.median(alone or [0.0]), statistics.median(together)


def cores_in_use(comm: MPI.Comm) -> int:
    """Return how many different cores the ranks may run on."""
    mine = {(socket.gethostname(), core) for core in os.sched_getaffinity(0)}
    return len(set().union(*comm.allgather(mine)))


def scaling_line(ranks: int, cores: int, alone: float, together: float) -> str:
    """Return the speed of all ranks against one, and against what the cores could give."""
    speed = alone / together
    share = speed / min(ranks, cores)
    noun = "rank" if ranks == 1 else "ranks"
    return (
        f"scaling: {ranks} {noun} {speed:.2f}x of 1 rank (efficiency {share:.0%} of the {cores} cores here)"
    )


def checksum(weights: Weights) -> float:
    """Return one number that changes when any weight does."""
    flat = np.concatenate([weight.ravel() for weight in weights])
    return float(flat @ np.cos(np.arange(flat.size)))


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what was asked for on the command line."""
    parser = argparse.ArgumentParser(description="data-parallel training of a small network")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=81_920)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--probe", type=int, default=40, help="steps for each measurement of the scaling line"
    )
    args = parser.parse_args(argv)
    if args.batch < 1 or args.samples < args.batch:
        parser.error(f"--samples {args.samples} must hold at least one batch of --batch {args.batch}")
    return args


def main() -> None:
    """Load, train, measure and tell."""
    comm, args = MPI.COMM_WORLD, arguments()
    count = args.samples // args.batch
    whole = (make_batch(args.seed, number, args.batch) for number in range(count))
    shards = [shard(batch, comm.rank, comm.size) for batch in whole]
    rows = sum(len(points) for points, _ in shards)
    say(f"rank {comm.rank} of {comm.size}: {rows} of {count * args.batch} samples")
    weights = train(comm, args, shards)
    accuracy = test_accuracy(comm, args, weights)
    alone, together = measure_scaling(comm, args)
    cores = cores_in_use(comm)
    if comm.rank == 0:
        say(f"RESULT accuracy={accuracy:.4f} checksum={checksum(weights):.12f} ranks={comm.size}")
        say(scaling_line(comm.size, cores, alone, together))


if __name__ == "__main__":
    main()
