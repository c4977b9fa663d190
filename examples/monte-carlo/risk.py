"""Value at risk of a portfolio by simulation: every rank throws its own dice, one reduction brings them together.

The portfolio is linear in correlated normal returns, so the exact value is known, and rank 0 compares:
a wrong answer ends the job as failed.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from mpi4py import MPI

POSITIONS = np.array([4.0, 2.5, 1.5, 1.0, 1.0])  # millions
VOLATILITY = np.array([0.011, 0.018, 0.025, 0.009, 0.031])  # of a day
CORRELATION = 0.3
CONFIDENCE = 0.99
BINS, WIDEST = 20_000, 1.0  # losses from -1 to +1 million, in bins that every rank counts alike


def covariance() -> np.ndarray:
    """Return how the positions move together."""
    correlation = np.full((len(VOLATILITY), len(VOLATILITY)), CORRELATION)
    np.fill_diagonal(correlation, 1.0)
    return correlation * np.outer(VOLATILITY, VOLATILITY)


def exact() -> float:
    """Return the value at risk that theory gives."""
    deviation = float(np.sqrt(POSITIONS @ covariance() @ POSITIONS))
    return statistics.NormalDist().inv_cdf(CONFIDENCE) * deviation


def counts(seed: tuple[int, int], scenarios: int) -> np.ndarray:
    """Return how many scenarios lose how much, in bins."""
    dice = np.random.default_rng(seed)
    root = np.linalg.cholesky(covariance())
    losses = -(dice.normal(size=(scenarios, len(POSITIONS))) @ root.T) @ POSITIONS
    return np.histogram(losses, bins=BINS, range=(-WIDEST, WIDEST))[0]


def quantile(histogram: np.ndarray) -> float:
    """Return the loss that is exceeded in one case of a hundred."""
    shares = np.cumsum(histogram) / histogram.sum()
    return float(2 * WIDEST * (np.searchsorted(shares, CONFIDENCE) + 0.5) / BINS - WIDEST)


def main() -> None:
    """Simulate, add up, and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenarios", type=int, default=2_000_000, help="of all ranks together")
    wanted = parser.parse_args().scenarios
    world = MPI.COMM_WORLD
    own = wanted // world.size + (world.rank < wanted % world.size)
    mine, total = counts((7, world.rank), own), np.zeros(BINS, dtype=np.int64)
    world.Reduce(mine, total)
    if world.rank == 0:
        found, theory = quantile(total), exact()
        print(
            f"RESULT var99={found:.4f} exact={theory:.4f} scenarios={total.sum()} ranks={world.size}",
            flush=True,
        )
        if abs(found / theory - 1) > 0.02:
            raise SystemExit("the simulated value at risk is more than 2 % off")


if __name__ == "__main__":
    main()
