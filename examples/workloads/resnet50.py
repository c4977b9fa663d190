"""ResNet-50 with DistributedDataParallel on images made of noise around a colour for each class."""

from __future__ import annotations

import torch
from common import TINY, join, tell, timed
from mpi4py import MPI
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

WIDTHS, BLOCKS = ((8, 16, 32, 64), (1, 1, 1, 1)) if TINY else ((64, 128, 256, 512), (3, 4, 6, 3))
SIDE, BATCH, STEPS, CLASSES = (32, 8, 12, 4) if TINY else (224, 128, 200, 1000)


class Bottleneck(nn.Module):
    """Three convolutions, around which the input goes as well."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        around = (nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.around = nn.Sequential(*around) if stride != 1 or inputs != 4 * width else nn.Identity()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(images) + self.around(images))


def resnet() -> nn.Sequential:
    """Return the network: 25.6 million weights in its full size."""
    width = WIDTHS[0]
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inputs = width
    for stage, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def main() -> None:
    world = MPI.COMM_WORLD
    device = join(world)
    model = DistributedDataParallel(resnet().to(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.02 * world.size ** (0 if TINY else 1), momentum=0.9)
    colours = torch.randn(CLASSES, 3, 1, 1)
    dice = torch.Generator().manual_seed(world.rank)

    def step(number: int) -> float:
        classes = torch.randint(CLASSES, (BATCH,), generator=dice)
        images = colours[classes] + 0.3 * torch.randn(BATCH, 3, SIDE, SIDE, generator=dice)
        loss = cross_entropy(model(images.to(device)), classes.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses, seconds = timed(world, STEPS, step)
    rate = BATCH * world.size * (STEPS - 1) / seconds
    tell(world, losses, images_per_second=f"{rate:.1f}")


if __name__ == "__main__":
    main()
