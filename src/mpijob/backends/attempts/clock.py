"""The clock of one attempt, which is never set back.

A machine's clock may jump: at the first contact with a time server, by an administrator, when a laptop wakes up.
So it is read once, when the attempt begins, and advanced by the time since boot. Everything in an attempt is on
one time line, durations are right, and events are ordered. Deadlines and grace times use `time.monotonic`.
"""

from __future__ import annotations

import time

_NS = 1_000_000_000


class Clock:
    """Times of one attempt, in seconds or nanoseconds since the epoch; never before `not_before`."""

    def __init__(self, not_before: float = 0.0) -> None:
        self._boot_ns = max(time.time_ns(), int(not_before * _NS)) - _since_boot_ns()

    def now_ns(self) -> int:
        return self._boot_ns + _since_boot_ns()

    def now(self) -> float:
        return self.now_ns() / _NS


def _since_boot_ns() -> int:
    # Unlike CLOCK_MONOTONIC, it counts the time in which the machine was suspended.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
