"""Elastic Horovod with PyTorch: the training goes on while workers come and go, from what was committed last."""

from __future__ import annotations

import os
import time

import horovod.torch as hvd
import torch
from torch import nn

ROWS, BATCH, RATE = 2048, 64, 0.05
EPOCHS, PAUSE = int(os.environ.get("EPOCHS", "6")), float(os.environ.get("PAUSE", "0"))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return points and on which side of a curved line each is."""
    torch.manual_seed(1)
    points = torch.randn(ROWS, 8)
    return points, (points[:, 0] * points[:, 1] + points[:, 2] > 0).long()


@hvd.elastic.run  # type: ignore[untyped-decorator]  # called again after each change of the world, with the same state
def train(state: hvd.elastic.TorchState, points: torch.Tensor, sides: torch.Tensor) -> None:
    """Train the epochs that are left, and commit each."""
    while state.epoch < EPOCHS:
        for first in range(hvd.rank() * BATCH, ROWS, hvd.size() * BATCH):
            state.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                state.model(points[first : first + BATCH]), sides[first : first + BATCH]
            )
            loss.backward()
            state.optimizer.step()
        state.epoch += 1
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}/{EPOCHS} loss={loss.item():.4f} ranks={hvd.size()}", flush=True)
        time.sleep(PAUSE)
        state.commit()  # new workers join here


def main() -> None:
    """Train, and tell the accuracy over all rows."""
    hvd.init()
    points, sides = data()
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0), points, sides)
    right = (model(points).argmax(dim=1) == sides).float().mean().item()
    if hvd.rank() == 0:
        print(f"RESULT accuracy={right:.4f} ranks={hvd.size()}", flush=True)
    if right < 0.75:
        raise SystemExit("the accuracy is below 0.75")


if __name__ == "__main__":
    main()
