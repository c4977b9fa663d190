"""Stacks of a local job's ranks, by a command in each worker; `formats.launch.stack_dump` parses its output.

The command runs inside the worker because there pids are those of the census, and ptrace is allowed.
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
    """Return the stacks of some ranks, or of all for ().

    `counted` is False where the command's own launcher started the ranks, so that their pids are not known.
    """
    selected = [rank for rank in state.ranks if not ranks or rank.rank in ranks]
    # The command searches all ranks then, from one worker, which sees the whole job.
    if not counted:
        found = _dump_stacks(attempt_dir / "door-0", ())
        return add_missing_ranks(found, selected)
    alive = [rank for rank in selected if rank.exit_code is None]
    workers = sorted({rank.worker for rank in alive})
    with ThreadPoolExecutor(max_workers=_PARALLEL_WORKERS) as executor:
        results = executor.map(lambda index: _stacks_of_worker(attempt_dir, index, alive), workers)
    return add_missing_ranks([stack for stacks in results for stack in stacks], selected)


def _stacks_of_worker(attempt_dir: Path, index: int, ranks: Iterable[RankState]) -> list[RankStack]:
    local = [rank for rank in ranks if rank.worker == index]
    pairs = [f"{rank.rank}:{rank.pid}" for rank in local]
    try:
        found = _dump_stacks(attempt_dir / f"door-{index}", pairs, index)
    except BackendError as error:
        return [
            RankStack(rank=rank.rank, worker=index, lack=Lack.UNREACHED, said=error.message) for rank in local
        ]
    missing = {rank.rank for rank in local} - {stack.rank for stack in found}
    return [*found, *(RankStack(rank=rank, worker=index, lack=Lack.TOO_SLOW) for rank in sorted(missing))]


def _dump_stacks(socket_path: Path, pairs: Sequence[str], worker: int | None = None) -> tuple[RankStack, ...]:
    # Random, so that no text of a stack can imitate the script's own lines.
    mark = secrets.token_hex(12)
    argv = ("/bin/sh", "-c", words.SCRIPT, "mpijob-stacks", mark, find_pyspy(), str(DUMP_SECONDS), *pairs)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    output, output_end = os.pipe2(os.O_CLOEXEC)
    try:
        connection = connect(socket_path, ExecRequest(argv), (null, output_end, null))
        # The pipe ends when the command ends, unless this process has its writing end open.
        os.close(output_end)
        output_end = -1
        with connection:
            text = _read(output)
    finally:
        for fd in (null, output, output_end):
            if fd >= 0:
                os.close(fd)
    return words.read(mark, text.decode(errors="replace"), worker)


def _read(fd: int) -> bytes:
    """Return the output until its end or the timeout."""
    text, deadline = bytearray(), time.monotonic() + TIMEOUT_SECONDS
    while len(text) < _MAX_BYTES and (left := deadline - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            break
        data = os.read(fd, 1 << 16)
        if not data:
            break
        text += data
    return bytes(text)
