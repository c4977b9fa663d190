"""What the torch workloads share: joining the ranks that MPI has started, and telling the result in one line."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

import torch
from mpi4py import MPI

TINY = os.environ.get("TINY") == "1"  # small enough for a CPU: shows that the workload runs, not how fast


def join(world: MPI.Comm) -> torch.device:
    """Set torch's variables, open its process group, return this rank's device."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        mine = (socket.gethostbyname(socket.gethostname()), listener.getsockname()[1])
    host, port = world.bcast(mine)
    gpu = torch.cuda.is_available()
    local = (
        "0" if gpu else os.environ.get("MPIJOB_LOCAL_RANK", "0")
    )  # a rank sees only its own GPU, as number 0
    os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port), RANK=str(world.rank), LOCAL_RANK=local)
    os.environ["WORLD_SIZE"] = str(world.size)
    torch.distributed.init_process_group("nccl" if gpu else "gloo")
    torch.manual_seed(1)
    return torch.device("cuda", 0) if gpu else torch.device("cpu")


def timed(world: MPI.Comm, steps: int, step: Callable[[int], float]) -> tuple[list[float], float]:
    """Return the mean loss of each step over the ranks, and the seconds that all but the first took."""
    losses, begin = [], 0.0
    for number in range(steps):
        losses.append(world.allreduce(step(number)) / world.size)
        if number == 0:
            begin = time.perf_counter()  # the first one compiles, allocates, connects
        if world.rank == 0:
            print(f"step {number + 1} of {steps}, loss={losses[-1]:.4f}", flush=True)
    return losses, time.perf_counter() - begin


def tell(world: MPI.Comm, losses: list[float], **figures: float | str) -> None:
    """Let rank 0 say the result, in the form that check.py reads."""
    said = {"first": f"{losses[0]:.4f}", "last": f"{losses[-1]:.4f}", "ranks": world.size, **figures}
    if world.rank == 0:
        print("RESULT " + " ".join(f"{name}={value}" for name, value in said.items()), flush=True)
    torch.distributed.destroy_process_group()
