"""Where the log files of a job lie, whose they are, and whether more will follow; reading them is done in `logs`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import IO, NamedTuple

from mpijob.backends.local import logs, merging, recovery
from mpijob.backends.local.paths import Home
from mpijob.backends.local.store import Store
from mpijob.model import LogLine, LogQuery, Phase, Role

_REMOVED = "the files of the log were removed, by somebody, by the job, or because they were kept long enough"


class Places(NamedTuple):
    """The directories of the wanted attempts, which worker each rank is on, and whether all is said."""

    directories: list[tuple[Path, int]]
    worker_of: dict[int, int]
    over: bool
    final: bool = True

    def lost(self) -> list[LogLine]:
        """Return a line for each attempt whose files are gone, of a job that has ended or rests."""
        gone = [attempt for directory, attempt in self.directories if self.final and not directory.is_dir()]
        return [logs.missing(_REMOVED, time.time_ns(), Role.LAUNCHER, attempt=attempt) for attempt in gone]


def places(store: Store, home: Home, uid: str, query: LogQuery) -> Places:
    """Return where to read what a job said, and says."""
    row = next(iter(store.rows("uid=?", uid)), None)
    if row is None:
        return Places([], {}, True)
    wanted = [*range(1, row.attempt + 1)] if query.attempt is None else [query.attempt]
    if row.holds:
        recovery.recover(store)
    final = row.phase.final or row.phase is Phase.SUSPENDED
    if row.state.running is None:  # an attempt that has not come so far has no files to lose
        wanted = [attempt for attempt in wanted if attempt < row.attempt or home.logs(uid, attempt).is_dir()]
    directories = [(home.logs(uid, attempt), attempt) for attempt in wanted]
    return Places(directories, logs.workers_of(row.state.ranks), final and not row.holds, final)


def merge(found: Places, query: LogQuery, target: IO[bytes], *, compress: bool) -> None:
    """Write all that the wanted sources said, one attempt after the other."""
    sources = logs.wanted_sources(found.directories, found.worker_of, query)
    for attempt in sorted({source.attempt for source in sources}):
        files = [(source.label, source.path) for source in sources if source.attempt == attempt]
        merging.merge(files, target, compress=compress)
