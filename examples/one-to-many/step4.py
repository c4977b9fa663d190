"""Step 4: more ranks, larger batches. The batch of a rank stays, so the learning rate grows with the ranks.

With n ranks a batch is n times as large and there are n times fewer steps. The usual rule multiplies the
rate by n and warms up to it; beyond some size it stops working, and the loss will say so.
"""

import numpy as np
from mpi4py import MPI

import mpijob

ROWS, BATCH, EPOCHS, RATE, WARM = 4096, 64, 4, 0.02, 5
world = MPI.COMM_WORLD


def data() -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(1)
    points = dice.normal(size=(ROWS, 3))
    return points, points @ np.array([2.0, -1.0, 0.5]) + dice.normal(scale=0.1, size=ROWS)


def gradient(weights: np.ndarray, points: np.ndarray, values: np.ndarray) -> np.ndarray:
    return 2 * points.T @ (points @ weights - values) / len(values)


def mean(value: np.ndarray) -> np.ndarray:
    return world.allreduce(value) / world.size


def rate(step: int) -> float:  # new: from the rate of one rank up to that of all
    return RATE * (1 + (world.size - 1) * min(step / WARM, 1.0))


points, values = data()
points, values = points[world.rank :: world.size], values[world.rank :: world.size]
weights, step = np.zeros(3), 0
for epoch in range(EPOCHS):
    for first in range(0, len(values), BATCH):  # new: the whole batch on every rank
        part = slice(first, first + BATCH)
        weights -= rate(step) * mean(gradient(weights, points[part], values[part]))
        step += 1
    loss = mean(np.mean((points @ weights - values) ** 2))
    if world.rank == 0:
        mpijob.report(epoch=epoch + 1, epochs=EPOCHS, loss=float(loss), rate=rate(step))  # new: curves
if world.rank == 0:
    print(f"RESULT steps={step} loss={loss:.5f} weights={np.round(weights, 3).tolist()}", flush=True)
