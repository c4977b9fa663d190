"""How long ranks had said nothing when something ended them."""

from __future__ import annotations

from collections.abc import Iterable

from mpijob.model import LogLine, Mark, Role


def silence(
    lines: Iterable[LogLine], end: float, *, begin: float | None = None, most: int | None = None
) -> float | None:
    """Return how many seconds no rank had said anything at `end`; what they say as they are ended does not count.

    `begin` counts where no rank had said anything; without it, that proves nothing. `most` is how many lines of
    one rank were read. None where it is not known: lines were lost, a rank may have said more than was read of
    it, or a line without an end, which has the time of its end.
    """
    times: dict[int | None, list[float]] = {}
    for line in lines:
        if Mark.GAP in line.marks:
            if line.role is Role.WORKER or line.time / 1e9 > end:
                continue  # no rank's words are missing there, or none that count
            return None
        if line.role is not Role.RANK:
            continue
        if line.time / 1e9 > end and Mark.OPEN in line.marks:
            return None
        times.setdefault(line.rank, []).append(line.time / 1e9)
    if most is not None and any(len(mine) >= most and min(mine) > end for mine in times.values()):
        return None
    before = [time for mine in times.values() for time in mine if time <= end]
    last = max(before, default=begin)
    return None if last is None else end - last
