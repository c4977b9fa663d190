"""DeepSpeed over ranks that MPI has started, or DeepSpeed's own launcher: ZeRO splits optimizer state over them.

DeepSpeed takes rank, size and address from variables: its launcher sets them, for MPI's ranks they are set here.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import deepspeed
import torch
from torch import nn

STEPS, BATCH = 40, 64


def tell_torch() -> None:
    """Set the variables by which torch and DeepSpeed find each other, unless a launcher has done so."""
    if "RANK" in os.environ:
        return
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    with socket.socket() as listener:
        listener.bind(("", 0))
        address = (socket.gethostbyname(socket.gethostname()), listener.getsockname()[1])
    host, port = world.bcast(address)
    local = os.environ.get("MPIJOB_LOCAL_RANK", "0") if not torch.cuda.is_available() else "0"
    os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port), RANK=str(world.rank), LOCAL_RANK=local)
    os.environ["WORLD_SIZE"] = str(world.size)


def mean_over_ranks(value: torch.Tensor) -> float:
    """Return the mean of what all ranks have."""
    total = value.detach().clone()
    torch.distributed.all_reduce(total)
    return total.item() / torch.distributed.get_world_size()


def main() -> None:
    """Train a small network and compare the loss at the end with that at the beginning."""
    tell_torch()
    gpu = torch.cuda.is_available()
    if not gpu:  # gloo is enough here; what DeepSpeed adds for CPUs it would compile at every first start
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="nccl" if gpu else "gloo", auto_mpi_discovery=False)
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    config = json.loads(Path("ds_config.json").read_text(encoding="utf-8"))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    dice = torch.Generator().manual_seed(rank)
    losses = []
    for step in range(1, STEPS + 1):
        points = torch.randn(BATCH, 16, generator=dice)
        wanted = points[:, :1] * 2 - points[:, 1:2]
        loss = nn.functional.mse_loss(engine(points.to(engine.device)), wanted.to(engine.device))
        engine.backward(loss)
        engine.step()
        losses.append(mean_over_ranks(loss))
        if rank == 0 and step % 10 == 0:
            print(f"step {step} of {STEPS}, loss={losses[-1]:.4f}", flush=True)
    if rank == 0:
        stage = config["zero_optimization"]["stage"]
        print(f"RESULT first={losses[0]:.3f} last={losses[-1]:.3f} zero={stage} ranks={ranks}", flush=True)
    if losses[-1] > losses[0] / 4:
        raise SystemExit("the loss has not fallen to a quarter")


if __name__ == "__main__":
    main()
