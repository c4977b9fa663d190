"""Horovod with TensorFlow and Keras: the optimizer is wrapped, the first weights come from rank 0."""

from __future__ import annotations

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

ROWS, BATCH, EPOCHS, RATE = 2048, 64, 6, 0.05


def main() -> None:
    """Train, and tell the accuracy over all rows."""
    hvd.init()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    dice = np.random.default_rng(1)
    points = dice.normal(size=(ROWS, 8)).astype("float32")
    sides = (points[:, 0] * points[:, 1] + points[:, 2] > 0).astype("int64")
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="tanh"), tf.keras.layers.Dense(2)])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(RATE * hvd.size(), momentum=0.9))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"])
    own = slice(hvd.rank(), None, hvd.size())
    first = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    speak = 2 if hvd.rank() == 0 else 0
    model.fit(points[own], sides[own], BATCH, EPOCHS, verbose=speak, callbacks=first)
    _, right = model.evaluate(points, sides, verbose=0)
    if hvd.rank() == 0:
        print(f"RESULT accuracy={right:.4f} ranks={hvd.size()}", flush=True)
    if right < 0.9:
        raise SystemExit("the accuracy is below 0.9")


if __name__ == "__main__":
    main()
