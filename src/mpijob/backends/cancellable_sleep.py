"""Sleep that ends early, for streams whose reader has closed them.

`client/threads` reads streams in threads of their own and sets the stop event of each such thread. A generator
cannot be closed from another thread while it runs, so streams of engines sleep and check here.
"""

from __future__ import annotations

import threading
import time


class _Thread(threading.local):
    stop_event: threading.Event | None = None


_thread = _Thread()


# A BaseException, so that no handler of errors within a stream keeps the thread alive.
class StreamCancelled(BaseException):
    """The reader has closed the stream of this thread; raised to end the thread, and caught only there."""


def set_stop_event(event: threading.Event | None) -> None:
    """Cancel the streams of this thread when the event is set; None for a thread whose streams are not cancelled."""
    _thread.stop_event = event


def raise_if_cancelled() -> None:
    if _thread.stop_event is not None and _thread.stop_event.is_set():
        raise StreamCancelled


def sleep(seconds: float) -> None:
    """Sleep; raise StreamCancelled as soon as the reader of this thread's stream has closed it."""
    if _thread.stop_event is None:
        time.sleep(seconds)
    elif _thread.stop_event.wait(seconds):
        raise StreamCancelled
