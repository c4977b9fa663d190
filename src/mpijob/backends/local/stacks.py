"""Collecting the stacks of a local job's ranks: a guest in each worker looks at the ranks there.

In the worker's own namespaces the ranks have the numbers that the census knows, and the guest has the rights
that the worker has over them. What it says is read by `formats/launch/stack_dump`.
"""

from __future__ import annotations

import os
import secrets
import select
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mpijob.backends.attempts.rank_stacks import add_missing_ranks, find_pyspy
from mpijob.backends.local.worker.exec_server import ExecRequest, connect
from mpijob.errors import BackendError
from mpijob.formats.launch import stack_dump as words
from mpijob.model import JobState, RankState
from mpijob.model.status.stacks import Lack, RankStack

DUMP_SECONDS = 10
TIMEOUT_SECONDS = 90.0
_PARALLEL_WORKERS = 4
_MAX_BYTES = 32 << 20


def collect(
    state: JobState, attempt_dir: Path, ranks: Sequence[int], *, counted: bool
) -> tuple[RankStack, ...]:
    """Return the stacks of the ranks asked for, or of all.

    `counted` is False where a launcher of the user's own started the ranks: then the guest must find them, all
    from one worker, since each sees the whole job.
    """
    wanted = [one for one in state.ranks if not ranks or one.rank in ranks]
    if not counted:
        found = _dump_stacks(attempt_dir / "door-0", ())
        return add_missing_ranks(found, wanted)
    alive = [one for one in wanted if one.exit_code is None]
    workers = sorted({one.worker for one in alive})
    with ThreadPoolExecutor(max_workers=_PARALLEL_WORKERS) as lanes:
        looks = lanes.map(lambda index: _stacks_of_worker(attempt_dir, index, alive), workers)
    return add_missing_ranks([stack for found in looks for stack in found], wanted)


def _stacks_of_worker(attempt_dir: Path, index: int, ranks: Iterable[RankState]) -> list[RankStack]:
    mine = [one for one in ranks if one.worker == index]
    try:
        found = _dump_stacks(attempt_dir / f"door-{index}", [f"{one.rank}:{one.pid}" for one in mine], index)
    except BackendError as error:
        return [
            RankStack(rank=one.rank, worker=index, lack=Lack.UNREACHED, said=error.message) for one in mine
        ]
    missing = {one.rank for one in mine} - {stack.rank for stack in found}
    return [*found, *(RankStack(rank=rank, worker=index, lack=Lack.TOO_SLOW) for rank in sorted(missing))]


def _dump_stacks(door: Path, pairs: Sequence[str], worker: int | None = None) -> tuple[RankStack, ...]:
    mark = secrets.token_hex(12)
    argv = ("/bin/sh", "-c", words.SCRIPT, "mpijob-stacks", mark, find_pyspy(), str(DUMP_SECONDS), *pairs)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    try:
        line = connect(door, ExecRequest(argv), (null, theirs, null))
        os.close(theirs)
        theirs = -1
        with line:
            said = _read(ours)
    finally:
        for fd in (null, ours, theirs):
            if fd >= 0:
                os.close(fd)
    return words.read(mark, said.decode(errors="replace"), worker)


def _read(fd: int) -> bytes:
    """Return what the guest says until it has ended, or until patience does."""
    said, deadline = bytearray(), time.monotonic() + TIMEOUT_SECONDS
    while len(said) < _MAX_BYTES and (left := deadline - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            break
        data = os.read(fd, 1 << 16)
        if not data:
            break
        said += data
    return bytes(said)
