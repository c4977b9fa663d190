"""The parts of a job as a tree: the launcher, below it the workers, below each worker its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from mpijob.cli.render import text
from mpijob.cli.render.job_table import memory_of
from mpijob.model import JobState, LauncherState, RankState, WorkerState
from mpijob.model.spec.quantity import as_count

T = TypeVar("T")
HEADER = ("PART", "GROUP", "PHASE", "NODE", "EXIT", "RESTARTS", "CPU", "MEMORY", "GPUS", "REASON")
_BRANCH, _LAST, _BAR, _GAP = "├─ ", "└─ ", "│  ", "   "


def lines(state: JobState) -> list[str]:
    """Return the table, a part a line; a job without a launcher of its own begins with its workers."""
    launcher, rows = state.launcher, list[Sequence[str]]()
    if launcher is not None:
        rows.append(_launcher_row(launcher))
    failed = {rank.worker: rank for rank in state.ranks if rank.exit_code and not rank.followed}
    for worker, last in _with_last(state.workers):
        branch, below = ("", "") if launcher is None else (_LAST, _GAP) if last else (_BRANCH, _BAR)
        rows.append(_worker_row(worker, failed.get(worker.index), branch))
        for rank, end in _with_last([one for one in state.ranks if one.worker == worker.index]):
            rows.append(_rank_row(rank, below + (_LAST if end else _BRANCH)))
    if any(worker.group for worker in state.workers):
        return text.table(HEADER, rows)
    return text.table(_without_group(HEADER), [_without_group(row) for row in rows]) if rows else []


def _without_group(row: Sequence[str]) -> Sequence[str]:
    return (row[0], *row[2:])


def _with_last(items: Sequence[T]) -> Iterator[tuple[T, bool]]:
    """Yield each item and whether it is the last one."""
    return ((item, at == len(items)) for at, item in enumerate(items, 1))


def _launcher_row(launcher: LauncherState) -> tuple[str, ...]:
    return (
        launcher.name,
        "",
        launcher.phase.value,
        launcher.node or "-",
        "-" if launcher.exit_code is None else str(launcher.exit_code),
        str(launcher.restarts),
        "-" if launcher.cores is None else f"asks {as_count(launcher.cores)}",
        _launcher_memory(launcher),
        ",".join(launcher.gpus) or "-",
        _reason(launcher.reason, launcher.message),
    )


def _launcher_memory(launcher: LauncherState) -> str:
    limit = launcher.memory_limit_bytes
    if launcher.memory_bytes is None and limit is not None:
        return f"limit {memory_of(limit, None)}"
    return memory_of(launcher.memory_bytes, limit)


def _worker_row(worker: WorkerState, failed: RankState | None, branch: str) -> tuple[str, ...]:
    """Return one worker; one that ended well itself shows how a rank of it failed."""
    return (
        branch + (worker.name or f"worker-{worker.index}"),
        worker.group or "-",
        worker.phase.value,
        worker.node or "-",
        _exit_of(worker, failed),
        str(worker.restarts),
        "-" if worker.cpu_cores is None else f"{worker.cpu_cores:.2f}",
        memory_of(worker.memory_bytes, worker.memory_limit_bytes),
        ",".join(worker.gpus) or "-",
        _reason(worker.reason, worker.message),
    )


def _rank_row(rank: RankState, branch: str) -> tuple[str, ...]:
    code = "-" if rank.exit_code is None else str(rank.exit_code)
    exit = code + " (consequence)" * rank.followed
    return (
        f"{branch}rank {rank.rank}",
        "",
        "",
        rank.node or "-",
        exit,
        "",
        "",
        "",
        ",".join(rank.gpus) or "-",
        "",
    )


def _exit_of(worker: WorkerState, failed: RankState | None) -> str:
    if failed is not None and not worker.exit_code:
        return f"{failed.exit_code} (rank {failed.rank})"
    return "-" if worker.exit_code is None else str(worker.exit_code)


def _reason(*parts: str) -> str:
    return ": ".join(part for part in parts if part) or "-"
