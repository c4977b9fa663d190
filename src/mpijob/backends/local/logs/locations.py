"""The directories of a job's log files, by attempt; `attempts.log_reader` reads them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import IO, NamedTuple

from mpijob.backends.attempts import log_reader
from mpijob.backends.local.logs import parallel_merge
from mpijob.backends.local.queue import recovery
from mpijob.backends.local.queue.store import Row, Store
from mpijob.backends.local.storage.paths import Home
from mpijob.model import LogLine, LogQuery, Phase, Role

REMOVED = "the log files were removed: by a user, by the job, or by log retention"


class LogLocations(NamedTuple):
    """Directories with their attempts, the worker of each rank, and whether the log is complete (`over`).

    `final`: the job has ended or is suspended; its last lines may still be missing.
    """

    directories: list[tuple[Path, int]]
    worker_of: dict[int, int]
    over: bool
    final: bool = True

    def missing_lines(self) -> list[LogLine]:
        """Return a line for each attempt whose log files were removed."""
        # A running job may not have created its directory yet.
        gone = [attempt for directory, attempt in self.directories if self.final and not directory.is_dir()]
        return [
            log_reader.gap_line(REMOVED, time.time_ns(), Role.LAUNCHER, attempt=attempt) for attempt in gone
        ]


def find_logs(store: Store, home: Home, uid: str, query: LogQuery) -> LogLocations:
    """Return where the log files of a job are; none for a deleted one."""
    row = next(iter(store.rows("uid=?", uid)), None)
    if row is None:
        return LogLocations([], {}, True)
    if row.holds:
        recovery.recover(store)
    final = row.phase.final or row.phase is Phase.SUSPENDED
    found = log_directories(home, row, query.attempt)
    return LogLocations(found, log_reader.workers_of(row.state.ranks), final and not row.holds, final)


def log_directories(home: Home, row: Row, attempt: int | None = None) -> list[tuple[Path, int]]:
    """Return the log directories of one attempt or of all, each with its attempt."""
    numbers = [*range(1, row.attempt + 1)] if attempt is None else [attempt]
    directories = [(home.logs(row.uid, number), number) for number in numbers]
    # An attempt that was ended before its ranks ran may have no directory; that is no gap.
    has_run = row.state.running is not None
    return [
        (directory, number)
        for directory, number in directories
        if has_run or number < row.attempt or directory.is_dir()
    ]


def merge(locations: LogLocations, query: LogQuery, target: IO[bytes], *, compress: bool) -> None:
    """Write the merged lines of the matching sources, one attempt after the other."""
    sources = log_reader.matching_sources(locations.directories, locations.worker_of, query)
    for attempt in sorted({source.attempt for source in sources}):
        files = [(source.label, source.path) for source in sources if source.attempt == attempt]
        parallel_merge.merge(files, target, compress=compress)
