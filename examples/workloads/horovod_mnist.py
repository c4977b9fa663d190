"""MNIST with Horovod and PyTorch; DATA names a directory with mnist.npz, without it the digits are made."""

from __future__ import annotations

import os
from pathlib import Path

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

BATCH, EPOCHS = 64, 3
NETWORK = (
    nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(800, 10),
)  # fmt: skip


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images and their digits."""
    place = Path(os.environ.get("DATA", "/nothing")) / "mnist.npz"
    if place.exists():
        with np.load(place) as kept:
            return torch.tensor(kept["x_train"] / 255.0).float()[:, None], torch.tensor(
                kept["y_train"]
            ).long()
    torch.manual_seed(1)
    shapes, digits = torch.rand(10, 1, 28, 28), torch.randint(10, (8192,))
    return shapes[digits] + 0.5 * torch.randn(8192, 1, 28, 28), digits


def main() -> None:
    hvd.init()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    images, digits = (one.to(device) for one in data())
    model = nn.Sequential(*NETWORK).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    losses = []
    for epoch in range(EPOCHS):
        for first in range(hvd.rank() * BATCH, len(digits), hvd.size() * BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(model(images[first : first + BATCH]), digits[first : first + BATCH])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{EPOCHS} loss={losses[-1]:.4f}", flush=True)
    right = (model(images).argmax(dim=1) == digits).float().mean().item()
    if hvd.rank() == 0:
        figures = f"first={losses[0]:.4f} last={losses[-1]:.4f} ranks={hvd.size()} accuracy={right:.4f}"
        print(f"RESULT {figures}", flush=True)


if __name__ == "__main__":
    main()
