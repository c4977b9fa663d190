"""TensorFlow under Intel MPI: each rank computes gradients, mpi4py averages them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from mpi4py import MPI

STEPS, BATCH = 60, 64


def main() -> None:
    world = MPI.COMM_WORLD
    library = MPI.Get_library_version().split("\n")[0].strip().replace(" ", "-")
    tf.random.set_seed(1)
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="tanh"), tf.keras.layers.Dense(2)])
    model.build((None, 8))
    optimizer = tf.keras.optimizers.Adam(0.01)
    measure = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    dice, losses, right = np.random.default_rng(world.rank), [], 0.0
    for step in range(1, STEPS + 1):
        points = dice.normal(size=(BATCH, 8)).astype("float32")
        sides = (points.sum(axis=1) > 0).astype("int64")
        with tf.GradientTape() as tape:
            scores = model(points)
            loss = measure(sides, scores)
        gradients = tape.gradient(loss, model.trainable_variables)
        means = [world.allreduce(one.numpy()) / world.size for one in gradients]
        optimizer.apply_gradients(zip(means, model.trainable_variables, strict=True))
        losses.append(world.allreduce(float(loss)) / world.size)
        right = world.allreduce(float((scores.numpy().argmax(axis=1) == sides).mean())) / world.size
        if world.rank == 0 and step % 20 == 0:
            print(f"step {step} of {STEPS}, loss={losses[-1]:.4f}", flush=True)
    if world.rank == 0:
        figures = f"first={losses[0]:.4f} last={losses[-1]:.4f} ranks={world.size} accuracy={right:.4f}"
        print(f"RESULT {figures} library={library}", flush=True)


if __name__ == "__main__":
    main()
