"""What services that go on until they are ended share: a log on stderr, and a word that says stop.

The word is spoken by a signal handler, which runs in the middle of whatever the main thread does. A plain Event
would wait there for a lock that the interrupted `wait` holds, for ever; so this one is a byte in a pipe.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading


class StopEvent(threading.Event):
    """An Event that a signal handler may set."""

    def __init__(self) -> None:
        super().__init__()
        self._said = False
        self._out, self._in = os.pipe()
        os.set_blocking(self._in, False)

    def set(self) -> None:
        """Say it; whoever waits wakes up, and the byte stays for those who come later."""
        self._said = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._in, b"!")

    def is_set(self) -> bool:
        """Whether it was said."""
        return self._said

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is said, or for so many seconds."""
        if not self._said:
            poll = select.poll()
            poll.register(self._out, select.POLLIN)
            poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
        return self._said


def until_ended() -> StopEvent:
    """Return what is set when somebody ends this process (SIGTERM, Ctrl-C); warnings are logged with their time."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    stop = StopEvent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
