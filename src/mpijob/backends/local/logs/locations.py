"""The log files of a job: where they are, whose they are, and whether more will follow."""

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
    """The directories of the wanted attempts, which worker each rank is on, and whether all is said."""

    directories: list[tuple[Path, int]]
    worker_of: dict[int, int]
    over: bool
    final: bool = True

    def missing_lines(self) -> list[LogLine]:
        """Return a line for each attempt whose files are gone, of a job that has ended or rests."""
        gone = [attempt for directory, attempt in self.directories if self.final and not directory.is_dir()]
        return [
            log_reader.gap_line(REMOVED, time.time_ns(), Role.LAUNCHER, attempt=attempt) for attempt in gone
        ]


def find_logs(store: Store, home: Home, uid: str, query: LogQuery) -> LogLocations:
    """Return where to read what a job said, and says."""
    row = next(iter(store.rows("uid=?", uid)), None)
    if row is None:
        return LogLocations([], {}, True)
    if row.holds:
        recovery.recover(store)
    final = row.phase.final or row.phase is Phase.SUSPENDED
    found = log_directories(home, row, query.attempt)
    return LogLocations(found, log_reader.workers_of(row.state.ranks), final and not row.holds, final)


def log_directories(home: Home, row: Row, attempt: int | None = None) -> list[tuple[Path, int]]:
    """Return where one attempt wrote, or each; one that has not come so far has no files to lose."""
    wanted = [*range(1, row.attempt + 1)] if attempt is None else [attempt]
    places = [(home.logs(row.uid, each), each) for each in wanted]
    begun = row.state.running is not None
    return [(place, each) for place, each in places if begun or each < row.attempt or place.is_dir()]


def merge(found: LogLocations, query: LogQuery, target: IO[bytes], *, compress: bool) -> None:
    """Write all that the wanted sources said, one attempt after the other."""
    sources = log_reader.matching_sources(found.directories, found.worker_of, query)
    for attempt in sorted({source.attempt for source in sources}):
        files = [(source.label, source.path) for source in sources if source.attempt == attempt]
        parallel_merge.merge(files, target, compress=compress)
