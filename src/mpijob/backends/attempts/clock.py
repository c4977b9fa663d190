"""The clock of one attempt: stamps that people understand and that nobody sets back.

A machine's own clock may jump (a first contact with a time server, an administrator, a laptop that
wakes up). So it is read once, when the attempt begins, and carried on by the time since the machine
was started: everything said, measured and ended in an attempt lies on one line of time, durations are
right, and what came first stands first. Decisions (deadlines, grace, silence) are made by
`time.monotonic` where they are made.
"""

from __future__ import annotations

import time

_NS = 1_000_000_000


class Clock:
    """Times of one attempt, in seconds or nanoseconds since the epoch; never before `not_before`."""

    def __init__(self, not_before: float = 0.0) -> None:
        self._ahead_ns = max(time.time_ns(), int(not_before * _NS)) - _since_boot_ns()

    def now_ns(self) -> int:
        """Return the time in nanoseconds."""
        return self._ahead_ns + _since_boot_ns()

    def now(self) -> float:
        """Return the time in seconds."""
        return self.now_ns() / _NS


def _since_boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
