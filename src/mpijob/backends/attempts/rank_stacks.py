"""What engines share that read call stacks of ranks by `exec`: the worker, the path of py-spy, missing ranks."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from mpijob.errors import NotFound
from mpijob.model import JobState, RankStack, RankState
from mpijob.model.status.stacks import Lack


def worker_of(state: JobState, worker: int | None, rank: int | None) -> int:
    """Return the index of the given worker, or of the worker of a rank; 0 without either. Raise NotFound."""
    if rank is not None:
        worker = next((item.worker for item in state.ranks if item.rank == rank), None)
        if worker is None:
            raise NotFound(f"{state.ref} has no rank {rank}: it has {state.world}, numbered from 0")
    index = 0 if worker is None else worker
    if not 0 <= index < state.workers_wanted:
        raise NotFound(f"{state.ref} has no worker {index}: it has {state.workers_wanted}, numbered from 0")
    return index


def find_pyspy() -> str:
    """Return the path of py-spy: of this Python's environment (`mpijob[stacks]`), else of the PATH; "" for none."""
    installed = Path(sys.executable).parent / "py-spy"
    return str(installed) if installed.exists() else shutil.which("py-spy") or ""


def add_missing_ranks(found: Iterable[RankStack], wanted: Iterable[RankState]) -> tuple[RankStack, ...]:
    """Return a stack for each of the wanted ranks, with its worker; those not found have ended."""
    stacks = {stack.rank: stack for stack in found}
    return tuple(
        msgspec.structs.replace(stacks[rank.rank], worker=rank.worker)
        if rank.rank in stacks
        else RankStack(rank=rank.rank, worker=rank.worker, lack=Lack.GONE)
        for rank in sorted(wanted, key=lambda rank: rank.rank)
    )
