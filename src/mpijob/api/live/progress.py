"""Cache the progress of jobs for some seconds: many open lists read each job's last lines once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from mpijob.api.schemas.job_schemas import JobProgress, JobRow

Read = Callable[[], Awaitable[JobProgress | None]]

_FRESH_SECONDS = 4.0
_AT_ONCE = 4
_KEPT = 2000


class ProgressCache:
    """The last result for each job; that of an ended job does not expire."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[tuple[str, str, bool], tuple[float, JobProgress | None]] = {}
        self._reading = asyncio.Semaphore(_AT_ONCE)

    async def of(self, row: JobRow, read: Read) -> JobProgress | None:
        """Return a job's progress; `read` is called if it is unknown or too old."""
        key = (row.namespace, f"{row.uid} {row.attempt}", row.phase.final)
        known = self._known.get(key)
        if known is not None and (row.phase.final or self._now() - known[0] < _FRESH_SECONDS):
            return known[1]
        async with self._reading:
            found = await read()
        while len(self._known) >= _KEPT:
            del self._known[next(iter(self._known))]
        self._known[key] = (self._now(), found)
        return found
