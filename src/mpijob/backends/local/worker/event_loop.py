"""The event loop of supervisor and worker: readable descriptors, ends of processes, signals."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable, Mapping

Callback = Callable[[], None]


class EventLoop:
    """Maps descriptors to callbacks; callbacks run in the thread that calls them after `wait`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, fd: int, callback: Callback) -> None:
        """Call back whenever the descriptor is readable or at its end."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def watch_exit(self, pid: int, callback: Callback) -> bool:
        """Call back once when a process ends, of any parent; return False if it has ended already."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False

        def ended() -> None:
            self.unwatch(fd)
            callback()

        self.watch(fd, ended)
        return True

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor, and close it."""
        self._selector.unregister(fd)
        os.close(fd)

    def wait(self, seconds: float) -> list[Callback]:
        """Wait at most so long; return the callbacks of what is ready, for the caller to call in its own order."""
        return [key.data for key, _ in self._selector.select(seconds)]

    def handle_signals(self, handlers: Mapping[signal.Signals, Callback | None]) -> None:
        """Install handlers (None: ignore the signal); these signals and SIGCHLD end a `wait`."""
        # `select` goes on after a signal (PEP 475), so the signal must make a descriptor readable. Python writes to it
        # only for signals that have a handler: hence the empty one for SIGCHLD.
        wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number, callback in handlers.items():
            signal.signal(number, signal.SIG_IGN if callback is None else _handler(callback))
        self.watch(wake, lambda: _discard(wake))


def _handler(callback: Callback) -> Callable[[int, object], None]:
    return lambda _number, _frame: callback()


def _discard(fd: int) -> None:
    os.read(fd, 4096)
