"""Letting a moment pass in a stream: one whose reader has left ends there, also where it has nothing to say.

`client.threads` reads streams in threads of their own, and tells here which of them are to end.
"""

from __future__ import annotations

import threading
import time

_own = threading.local()


class StreamCancelled(BaseException):
    """Nobody reads the stream of this thread any more; no stream catches it, and it ends the thread alone."""


def set_stop_event(stopped: threading.Event | None) -> None:
    """Let the streams of this thread end when this happens."""
    _own.stopped = stopped


def raise_if_cancelled() -> None:
    """Raise Abandoned where the reader of this thread's stream has left."""
    stopped: threading.Event | None = getattr(_own, "stopped", None)
    if stopped is not None and stopped.is_set():
        raise StreamCancelled


def sleep(seconds: float) -> None:
    """Let a moment pass, shorter where the reader of this thread's stream leaves: raise StreamCancelled then."""
    stopped: threading.Event | None = getattr(_own, "stopped", None)
    if stopped is None:
        time.sleep(seconds)
    elif stopped.wait(seconds):
        raise StreamCancelled
