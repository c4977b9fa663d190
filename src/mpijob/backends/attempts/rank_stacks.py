"""What looks at ranks by exec have in common: which worker is meant, where py-spy is, and the ranks that have ended."""

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
    """Return the index of the worker that is named, by itself or by a rank on it; the first where none is."""
    if rank is not None:
        worker = next((one.worker for one in state.ranks if one.rank == rank), None)
        if worker is None:
            raise NotFound(f"{state.ref} has no rank {rank}: it has {state.world}, numbered from 0")
    index = 0 if worker is None else worker
    if not 0 <= index < state.workers_wanted:
        raise NotFound(f"{state.ref} has no worker {index}: it has {state.workers_wanted}, numbered from 0")
    return index


def find_pyspy() -> str:
    """Return where py-spy is: beside the Python that runs us (`mpijob[stacks]`), else on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy") or ""


def add_missing_ranks(found: Iterable[RankStack], wanted: Iterable[RankState]) -> tuple[RankStack, ...]:
    """Return what was found of the ranks asked for, each with its worker; one that has ended is told as that."""
    seen = {stack.rank: stack for stack in found}
    return tuple(
        msgspec.structs.replace(seen[one.rank], worker=one.worker)
        if one.rank in seen
        else RankStack(rank=one.rank, worker=one.worker, lack=Lack.GONE)
        for one in sorted(wanted, key=lambda one: one.rank)
    )
