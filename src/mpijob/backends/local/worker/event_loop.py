"""One loop over descriptors and signals, for supervisor and worker alike."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable, Mapping

Callback = Callable[[], None]


class EventLoop:
    """Calls back when something can be read, and wakes up for signals."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, fd: int, act: Callback) -> None:
        """Call when the descriptor has something to say."""
        self._selector.register(fd, selectors.EVENT_READ, act)

    def watch_exit(self, pid: int, act: Callback) -> bool:
        """Call once when a process has ended; return False when it has already."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False

        def ended() -> None:
            self.unwatch(fd)
            act()

        self.watch(fd, ended)
        return True

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor and close it."""
        self._selector.unregister(fd)
        os.close(fd)

    def wait(self, seconds: float) -> list[Callback]:
        """Return what is to be called now, after waiting at most so long for something."""
        return [key.data for key, _ in self._selector.select(seconds)]

    def handle_signals(self, handlers: Mapping[signal.Signals, Callback | None]) -> None:
        """Wake up for a child's end and for these signals; None means that one is ignored."""
        wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number, act in handlers.items():
            signal.signal(number, signal.SIG_IGN if act is None else _calling(act))
        self.watch(wake, lambda: _swallow(wake))


def _calling(act: Callback) -> Callable[[int, object], None]:
    return lambda _number, _frame: act()


def _swallow(fd: int) -> None:
    os.read(fd, 4096)
