"""Step 2: the same script on several ranks, each with its own rows. It runs, and it is wrong.

Nothing brings the ranks together, so each fits a line of its own to its part of the data.
"""

import numpy as np
from mpi4py import MPI  # new

ROWS, BATCH, EPOCHS, RATE = 4096, 256, 4, 0.1
world = MPI.COMM_WORLD  # new


def data() -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(1)
    points = dice.normal(size=(ROWS, 3))
    return points, points @ np.array([2.0, -1.0, 0.5]) + dice.normal(scale=0.1, size=ROWS)


def gradient(weights: np.ndarray, points: np.ndarray, values: np.ndarray) -> np.ndarray:
    return 2 * points.T @ (points @ weights - values) / len(values)


points, values = data()
points, values = points[world.rank :: world.size], values[world.rank :: world.size]  # new: every size-th row
share = BATCH // world.size  # new: all ranks together see one batch
weights = np.zeros(3)
for epoch in range(EPOCHS):
    for first in range(0, len(values), share):
        part = slice(first, first + share)
        weights -= RATE * gradient(weights, points[part], values[part])
    print(f"epoch {epoch + 1}: loss={np.mean((points @ weights - values) ** 2):.5f}", flush=True)
print(f"RESULT weights={np.round(weights, 6).tolist()}", flush=True)
