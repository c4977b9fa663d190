"""The time limits of an attempt: deadline, start timeout, silent workers, a launcher that does not end.

A limit that was exceeded is noted in `AttemptState`; the supervisor ends the attempt.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from mpijob.backends.local.worker import process_tree
from mpijob.model import Plan
from mpijob.observation.state.attempt_state import AttemptState
from mpijob.observation.state.phase import Reason

# Without a heartbeat, of a worker in state T (stopped).
SILENT_SECONDS = 3.0
# Of any other: on a machine with too few cores it may only be waiting for one.
STARVED_SECONDS = 60.0
# From the last rank's end: Open MPI's mpirun sometimes does not end after ranks that ended at once
# (docs/decisions/0013).
STUCK_SECONDS = 15.0


class Deadlines:
    """The time limits of one attempt, which starts with the creation of this object."""

    def __init__(self, plan: Plan, attempt_state: AttemptState) -> None:
        self._job = plan.job
        self._world = plan.world
        self._attempt = attempt_state
        self._last_alive: dict[int, float] = {}
        self._last_check = time.monotonic()
        self._ranks_ended_at = 0.0
        self.warned = False
        self.began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def worker_is_alive(self, worker: int) -> None:
        self._last_alive[worker] = time.monotonic()

    def check(self) -> None:
        """Note limits that were exceeded; call it regularly."""
        self._check_start()
        self._check_launcher()
        limit = self._job.deadline_seconds
        if limit is not None and self.elapsed >= limit:
            self._attempt.deadline_passed = True

    def warning_due(self) -> bool:
        """Return True once, when the ranks must get the signal that announces the deadline."""
        limit, early = self._job.deadline_seconds, self._job.signal.seconds_before
        due = limit is not None and bool(early) and self.elapsed >= limit - early and not self.warned
        self.warned = self.warned or due
        return due

    def find_silent(self, workers: Mapping[int, int]) -> list[int]:
        """Return the workers (pid to index given) that exist but send no heartbeat, noted as lost."""
        now = time.monotonic()
        # This process itself was stopped, or had no core: heartbeats of that time are not read yet.
        if now - self._last_check > SILENT_SECONDS:
            self._last_alive = dict.fromkeys(self._last_alive, now)
        self._last_check = now
        quiet = [index for pid, index in workers.items() if self._is_silent(pid, index, now)]
        for index in quiet:
            text = f"worker {index} has been silent for {now - self._last_alive[index]:.0f} s"
            self._attempt.stop(Reason.WORKER_LOST, text)
            self._attempt.worker_stopped(index)
        return quiet

    def _is_silent(self, pid: int, index: int, now: float) -> bool:
        silence = now - self._last_alive.get(index, now)
        return silence > STARVED_SECONDS or (silence > SILENT_SECONDS and process_tree.is_stopped(pid))

    def _check_start(self) -> None:
        limit = self._job.gang_timeout_seconds
        if self.elapsed > limit and self._attempt.proved is None and self._attempt.launcher is None:
            ranks, ready = len(self._attempt.ranks), len(self._attempt.ready)
            text = f"after {limit:g} s {ready} of {self._job.workers} workers"
            self._attempt.stop(
                Reason.START_TIMEOUT, f"{text} and {ranks} of {self._world} ranks had reported"
            )

    def _check_launcher(self) -> None:
        done = len(self._attempt.rank_exits) == self._world and self._attempt.launcher is None
        self._ranks_ended_at = (self._ranks_ended_at or time.monotonic()) if done else 0.0
        if done and time.monotonic() - self._ranks_ended_at > STUCK_SECONDS:
            text = f"all ranks had ended, and the launcher did not end within {STUCK_SECONDS:g} s"
            self._attempt.stop(Reason.LAUNCHER_UNACCOUNTED, text)
