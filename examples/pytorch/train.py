"""PyTorch DistributedDataParallel whose ranks MPI has started: gloo on CPUs, nccl where each rank has a GPU.

MPI tells the ranks who they are; torch opens its own connections, for which rank 0 names an address.
The data is made from a seed, so the result is the same for any number of ranks.
"""

from __future__ import annotations

import os
import socket

import torch
from mpi4py import MPI
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROWS, BATCH, EPOCHS, RATE = 2048, 256, 6, 0.5


def join(world: MPI.Comm) -> torch.device:
    """Open torch's process group over the ranks of MPI; return this rank's device."""
    address = (socket.gethostbyname(socket.gethostname()), free_port()) if world.rank == 0 else None
    host, port = world.bcast(address)
    os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port))
    gpu = torch.cuda.is_available()
    torch.distributed.init_process_group("nccl" if gpu else "gloo", rank=world.rank, world_size=world.size)
    return (
        torch.device("cuda", 0) if gpu else torch.device("cpu")
    )  # each rank sees only its own GPU, as number 0


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return points and on which side of a curved line each is."""
    torch.manual_seed(1)
    points = torch.randn(ROWS, 8)
    return points, (points[:, 0] * points[:, 1] + points[:, 2] > 0).long()


def main() -> None:
    """Train, and tell the accuracy over all rows."""
    world = MPI.COMM_WORLD
    device = join(world)
    points, sides = (one.to(device) for one in data())
    torch.manual_seed(2)  # the same start on every rank
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE, momentum=0.9)
    for epoch in range(EPOCHS):
        for first in range(0, ROWS, BATCH):
            rows = slice(first + world.rank, first + BATCH, world.size)
            loss = nn.functional.cross_entropy(parallel(points[rows]), sides[rows])
            optimizer.zero_grad()
            loss.backward()  # gradients are averaged over the ranks here
            optimizer.step()
        if world.rank == 0:
            print(f"epoch {epoch + 1}/{EPOCHS} loss={loss.item():.4f}", flush=True)
    right = (model(points).argmax(dim=1) == sides).float().mean().item()
    checksum = sum(weight.abs().sum().item() for weight in model.parameters())
    if len({round(one, 3) for one in world.allgather(checksum)}) != 1:
        raise SystemExit("the ranks do not have the same weights")
    if world.rank == 0:
        print(
            f"RESULT accuracy={right:.4f} checksum={checksum:.3f} ranks={world.size} on={device.type}",
            flush=True,
        )
    torch.distributed.destroy_process_group()
    if right < 0.9:
        raise SystemExit("the accuracy is below 0.9")


if __name__ == "__main__":
    main()
