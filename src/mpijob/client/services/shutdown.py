"""Logging and shutdown of long-lived services."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading


# A signal handler runs in the middle of whatever the main thread does. `threading.Event.set` would deadlock
# there if it interrupts `wait`, which holds the same lock. So this event is a byte in a pipe.
class StopEvent(threading.Event):
    """An Event that a signal handler may set."""

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._out, self._in = os.pipe()
        os.set_blocking(self._in, False)

    def set(self) -> None:
        self._is_set = True
        # The byte is never read, so later waits return at once; a full pipe has enough.
        with contextlib.suppress(BlockingIOError):
            os.write(self._in, b"!")

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            poll = select.poll()
            poll.register(self._out, select.POLLIN)
            poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
        return self._is_set


def until_ended() -> StopEvent:
    """Return the event that SIGTERM and Ctrl-C set, and log warnings with their time."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    stop = StopEvent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
