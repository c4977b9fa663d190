"""Start or wake a runner when there is work: each process that uses the engine does so, as there is no daemon.

A runner itself is in `runner`; the pipe and the start of background programs are in `recurring.background`.
"""

from __future__ import annotations

import time

from mpijob.backends.local.queue import recovery, scheduler
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage.paths import Home
from mpijob.backends.recurring.background import start, wake_listener
from mpijob.settings import Settings

_START_SECONDS = 1.0
_CHECK_SECONDS = 1.0


class RunnerWaker:
    """Makes sure that a runner exists while jobs can start; for one process."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home, self._settings = home, settings
        # The monotonic times of the last `prewarm` and of the last `wake_for_waiting`.
        self._prewarmed = -_START_SECONDS
        self._checked = -_CHECK_SECONDS

    def prewarm(self, store: Store) -> None:
        """Start a runner on an idle engine, unless one listens already."""
        # It starts while the job is checked and planned; a start takes about 90 ms (docs/decisions/0014).
        if not store.read("SELECT 1 FROM jobs WHERE holds=1 OR phase='Queued' LIMIT 1"):
            ensure_runner(self._home, self._settings)
            self._prewarmed = time.monotonic()

    def wake(self, store: Store) -> None:
        """Start or wake a runner if the next job in order could start now."""
        if scheduler.can_start(store, time.time(), self._settings) and not self._has_runner():
            ensure_runner(self._home, self._settings)

    def _has_runner(self) -> bool:
        # One of `prewarm` may not listen yet, and reads the queue before it does.
        started = time.monotonic() - self._prewarmed < _START_SECONDS
        return notify_listening(self._home) or started

    def wake_for_waiting(self, store: Store) -> None:
        """Find lost jobs and start waiting ones, at most once a second."""
        # The submitting process, or the runner of the job before, may have been killed: then no other process does it.
        now = time.monotonic()
        if now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            recovery.recover(store)
            self.wake(store)

    def wake_for_expired(self, store: Store) -> None:
        """Start a runner if there are jobs whose `ttl_seconds` are over."""
        # Runners stay for them (`Runner._listen`), but not over a restart of the machine.
        if store.read("SELECT 1 FROM jobs WHERE ttl IS NOT NULL LIMIT 1"):
            from mpijob.backends.local.queue import retention

            if retention.has_expired(store, time.time()):
                ensure_runner(self._home, self._settings)


_RUNNER = "from mpijob.backends.local.queue.runner import main; main()"


def ensure_runner(home: Home, settings: Settings) -> None:
    """Wake the runner that listens, or start one."""
    if not notify_listening(home):
        start_runner(home, settings)


def start_runner(home: Home, settings: Settings) -> None:
    """Start a runner, even if another one listens."""
    start(home, settings, _RUNNER)


def notify_listening(home: Home) -> bool:
    """Wake a runner that listens; return False if none does."""
    return wake_listener(home.wakeup_pipe)
