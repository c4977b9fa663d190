"""Horovod with PyTorch: three lines make a script distributed, MPI has started its ranks."""

from __future__ import annotations

import horovod.torch as hvd
import torch
from torch import nn

ROWS, BATCH, EPOCHS, RATE = 2048, 64, 6, 0.05


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return points and on which side of a curved line each is."""
    torch.manual_seed(1)
    points = torch.randn(ROWS, 8)
    return points, (points[:, 0] * points[:, 1] + points[:, 2] > 0).long()


def main() -> None:
    """Train, and tell the accuracy over all rows."""
    hvd.init()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    points, sides = (one.to(device) for one in data())
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    rate = RATE * hvd.size()  # a larger batch bears a larger rate
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for epoch in range(EPOCHS):
        for first in range(hvd.rank() * BATCH, ROWS, hvd.size() * BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                model(points[first : first + BATCH]), sides[first : first + BATCH]
            )
            loss.backward()
            optimizer.step()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{EPOCHS} loss={loss.item():.4f}", flush=True)
    right = (model(points).argmax(dim=1) == sides).float().mean().item()
    if hvd.rank() == 0:
        torch.save(model.state_dict(), "model.pt")  # all ranks have the same weights: one writes them
        print(f"RESULT accuracy={right:.4f} ranks={hvd.size()} on={device.type}", flush=True)
    if right < 0.9:
        raise SystemExit("the accuracy is below 0.9")


if __name__ == "__main__":
    main()
