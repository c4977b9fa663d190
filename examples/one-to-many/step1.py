"""Step 1: a training as it is on one process, a line fitted by gradient descent."""

import numpy as np

ROWS, BATCH, EPOCHS, RATE = 4096, 256, 4, 0.1


def data() -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(1)
    points = dice.normal(size=(ROWS, 3))
    return points, points @ np.array([2.0, -1.0, 0.5]) + dice.normal(scale=0.1, size=ROWS)


def gradient(weights: np.ndarray, points: np.ndarray, values: np.ndarray) -> np.ndarray:
    return 2 * points.T @ (points @ weights - values) / len(values)


points, values = data()
weights = np.zeros(3)
for epoch in range(EPOCHS):
    for first in range(0, ROWS, BATCH):
        part = slice(first, first + BATCH)
        weights -= RATE * gradient(weights, points[part], values[part])
    print(f"epoch {epoch + 1}: loss={np.mean((points @ weights - values) ** 2):.5f}", flush=True)
print(f"RESULT weights={np.round(weights, 6).tolist()}", flush=True)
