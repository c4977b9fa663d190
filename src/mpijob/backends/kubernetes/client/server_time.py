"""What time it is on the cluster: its objects carry its own times, and this machine's clock may be wrong.

Every answer of an API server says when it was given (RFC 9110, 6.6.1), to the second. Clocks that agree so far
are taken for equal; otherwise what is compared with the cluster's times is counted by the cluster's clock.
"""

from __future__ import annotations

from datetime import UTC, datetime

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_AGREE_SECONDS = 3.0


def ahead_seconds(date: str, received: float) -> float:
    """Return how far the clock that wrote this date is ahead of the one that says when it was received."""
    written = moment(date)
    if written is None:
        return 0.0
    ahead = written + 0.5 - received
    return ahead if abs(ahead) > _AGREE_SECONDS else 0.0


def moment(date: str) -> float | None:
    """Return the seconds since 1970 of `Sun, 15 Nov 2026 09:51:19 GMT`; None for anything else."""
    try:
        _, day, month, year, clock, zone = date.split()
        hour, minute, second = map(int, clock.split(":"))
        read = datetime(
            int(year), _MONTHS.index(month) + 1, int(day), hour, minute, min(second, 59), tzinfo=UTC
        )
    except ValueError:
        return None
    return read.timestamp() if zone == "GMT" else None
