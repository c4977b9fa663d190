"""Whether a runner has to be woken: what every calling process looks after, since there is no daemon.

How one is woken or started is in `spawn_runner`, which is not loaded where nobody waits.
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
    """Sees to it that somebody runs what is queued; remembers whom it has just called."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home, self._settings = home, settings
        self._prewarmed = -_START_SECONDS  # when a runner was last started before its job was there
        self._checked = -_CHECK_SECONDS  # when we last looked for jobs that nobody starts

    def prewarm(self, store: Store) -> None:
        """Start a runner on an idle engine, while the job is checked and planned, unless one listens already."""

        if not store.read("SELECT 1 FROM jobs WHERE holds=1 OR phase='Queued' LIMIT 1"):
            ensure_runner(self._home, self._settings)
            self._prewarmed = time.monotonic()

    def wake(self, store: Store) -> None:
        """See to it that somebody runs what is queued, if the next job in order could start now."""
        if scheduler.can_start(store, time.time(), self._settings) and not self._has_runner():
            ensure_runner(self._home, self._settings)

    def _has_runner(self) -> bool:
        """Whether a runner that was started a moment ago will look at the queue, or has just been rung for."""

        started = time.monotonic() - self._prewarmed < _START_SECONDS
        return notify_listening(self._home) or started

    def wake_for_waiting(self, store: Store) -> None:
        """Who submitted a job, or ran the one before it, may have been killed: then nobody else would start it."""
        now = time.monotonic()
        if now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            recovery.recover(store)
            self.wake(store)

    def wake_for_expired(self, store: Store) -> None:
        """After a restart of the machine nobody deletes jobs whose `ttl_seconds` are over."""
        if store.read("SELECT 1 FROM jobs WHERE ttl IS NOT NULL LIMIT 1"):
            from mpijob.backends.local.queue import retention

            if retention.has_expired(store, time.time()):
                ensure_runner(self._home, self._settings)


_RUNNER = "from mpijob.backends.local.queue.runner import main; main()"


def ensure_runner(home: Home, settings: Settings) -> None:
    """See to it that somebody looks at the queue."""
    if not notify_listening(home):
        start_runner(home, settings)


def start_runner(home: Home, settings: Settings) -> None:
    """Start a runner, though another may listen."""
    start(home, settings, _RUNNER)


def notify_listening(home: Home) -> bool:
    """Wake a runner that listens; return False when none does."""
    return wake_listener(home.wakeup_pipe)
