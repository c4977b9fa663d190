"""Everything about an attempt that time decides: what comes too late, and what says nothing.

It looks at the ledger and notes there what must end the attempt; ending it is the supervisor's work.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from mpijob.backends.local.ledger import Ledger
from mpijob.model import Plan
from mpijob.observation.phase import Reason

SILENT_SECONDS = 3.0
STUCK_SECONDS = 15.0


class Timekeeper:
    """The clock of one attempt, which began when this was made."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        self._job = plan.job
        self._world = plan.world
        self._ledger = ledger
        self._heard: dict[int, float] = {}
        self._done_since = 0.0
        self._warned = False
        self.began = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self.began

    def heard(self, worker: int) -> None:
        """A worker has shown that it is not stuck."""
        self._heard[worker] = time.monotonic()

    def look(self) -> None:
        """Note what has come too late."""
        self._look_at_start()
        self._look_at_end()
        limit = self._job.deadline_seconds
        if limit is not None and self.elapsed >= limit:
            self._ledger.deadline_passed = True

    def warning_due(self) -> bool:
        """Return once that the ranks must get their signal now, because the deadline is near."""
        limit, early = self._job.deadline_seconds, self._job.signal.seconds_before
        due = limit is not None and bool(early) and self.elapsed >= limit - early and not self._warned
        self._warned = self._warned or due
        return due

    def silent(self, workers: Iterable[int]) -> list[int]:
        """Return the workers that are there and say nothing, which is as bad as being gone."""
        now = time.monotonic()
        quiet = [index for index in workers if now - self._heard.get(index, now) > SILENT_SECONDS]
        for index in quiet:
            text = f"worker {index} has been silent for {SILENT_SECONDS:g} s"
            self._ledger.stop(Reason.WORKER_LOST, text)
            self._ledger.silent(index)
        return quiet

    def _look_at_start(self) -> None:
        """A world that does not come up in time never will."""
        limit = self._job.gang_timeout_seconds
        if self.elapsed > limit and self._ledger.proved is None and self._ledger.launcher is None:
            ranks, ready = len(self._ledger.ranks), len(self._ledger.ready)
            text = f"after {limit:g} s {ready} of {self._job.workers} workers"
            self._ledger.stop(Reason.START_TIMEOUT, f"{text} and {ranks} of {self._world} ranks had reported")

    def _look_at_end(self) -> None:
        """A launcher that stays when all its ranks have ended is stuck (seen with Open MPI)."""
        done = len(self._ledger.rank_exits) == self._world and self._ledger.launcher is None
        self._done_since = (self._done_since or time.monotonic()) if done else 0.0
        if done and time.monotonic() - self._done_since > STUCK_SECONDS:
            text = f"all ranks had ended, and the launcher did not end within {STUCK_SECONDS:g} s"
            self._ledger.stop(Reason.LAUNCHER_UNACCOUNTED, text)
