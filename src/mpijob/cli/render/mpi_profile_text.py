"""Print an MPI profile: a row for each rank, the longest calls, a heat map of traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpijob.cli.render import text
from mpijob.model.spec.quantity import as_bytes
from mpijob.model.status.mpi_profile import CallKind, MpiProfile, RankProfile

_SHADES = " ░▒▓█"
# Cells in a row of a heat map: more ranks share a cell.
_WIDEST = 32
# Rows: of more ranks, those that differ most are shown.
_MOST_RANKS = 32
_COLUMNS = ("RANK", "WORKER", "TIME", "MPI-TIME", "P2P", "WAIT", "COLLECTIVE", "ONE-SIDED", "FILES", "SENT",
            "MESSAGES", "NOW")  # fmt: skip


def lines(found: MpiProfile, *, calls: int, pairs: int) -> Iterator[str]:
    """Yield everything, what stands out first."""
    yield from summary(found)
    yield ""
    yield from rank_table(found)
    if found.calls and calls:
        yield ""
        yield from text.table(("CALL", "CALLS", "TIME", "MEAN", "SENT"), _call_rows(found, calls))
    if len(found.ranks) > 1 and any(pair.size for pair in found.pairs):
        yield ""
        yield from heat_map(found)
    if found.pairs and pairs:
        yield ""
        yield from text.table(
            ("FROM", "TO", "SENT", "MESSAGES", "BANDWIDTH", "WAITED"), _pair_rows(found, pairs)
        )
    for lack in found.lacks:
        yield f"note: {lack}"


def rank_table(found: MpiProfile) -> Iterator[str]:
    """Yield a row for each rank, or for those that differ most."""
    yield from text.table(_COLUMNS, map(_rank_row, _shown(found.ranks)))
    if len(found.ranks) > _MOST_RANKS:
        yield f"… {len(found.ranks) - _MOST_RANKS} more ranks, between these: mpijob profile -o json has all"


def summary(found: MpiProfile) -> Iterator[str]:
    """Yield the share of time in MPI and what stands out."""
    yield f"{_percent(found.share or 0.0)} of the time in MPI, {len(found.ranks)} ranks{_library(found)}"
    for remark in found.remarks:
        yield f"- {remark}"


def _library(found: MpiProfile) -> str:
    names = {one.library for one in found.ranks if one.library}
    return f", {text.one_line(min(names))}" if len(names) == 1 else ""


def _shown(ranks: Sequence[RankProfile]) -> Sequence[RankProfile]:
    """Return the ranks in order; of too many, those with the smallest and the largest share."""
    if len(ranks) <= _MOST_RANKS:
        return ranks
    ordered = sorted(ranks, key=lambda one: one.share)
    half = _MOST_RANKS // 2
    return sorted((*ordered[:half], *ordered[-half:]), key=lambda one: one.rank)


def _rank_row(one: RankProfile) -> tuple[str, ...]:
    kinds = (
        one.seconds_in(CallKind.POINT_TO_POINT),
        one.seconds_in(CallKind.WAITING),
        one.seconds_in(CallKind.COLLECTIVE),
        one.seconds_in(CallKind.ONE_SIDED),
        one.seconds_in(CallKind.FILES),
    )
    return (
        str(one.rank),
        "-" if one.worker is None else str(one.worker),
        text.duration(one.seconds),
        _percent(one.share),
        *(_percent(seconds / one.seconds) if seconds and one.seconds else "-" for seconds in kinds),
        as_bytes(one.sent),
        str(one.messages),
        now(one),
    )


def now(one: RankProfile) -> str:
    """Return what a rank does: the call it is in, how it ended, or that it computes."""
    if one.ended:
        return "ended"
    if not one.calling:
        return "aborted" if one.aborted else "computing"
    whom = "" if one.calling_peer is None else f" with rank {one.calling_peer}"
    return f"{text.one_line(one.calling)}{whom}, {text.duration(one.calling_seconds)}"


def _call_rows(found: MpiProfile, most: int) -> Iterator[tuple[str, ...]]:
    for call in found.calls[:most]:
        mean = call.seconds / call.calls if call.calls else 0.0
        sent = as_bytes(call.size) if call.size else "-"
        yield text.one_line(call.name), str(call.calls), text.duration(call.seconds), _short(mean), sent


def _pair_rows(found: MpiProfile, most: int) -> Iterator[tuple[str, ...]]:
    for pair in found.pairs[:most]:
        rate = "-" if pair.bandwidth is None else f"{as_bytes(pair.bandwidth)}/s"
        waited = text.duration(pair.waited_seconds) if pair.waited_seconds >= 0.05 else "-"
        yield str(pair.sender), str(pair.receiver), as_bytes(pair.size), str(pair.messages), rate, waited


def heat_map(found: MpiProfile) -> Iterator[str]:
    """Yield a square of shades: row by row who sends, column by column who receives."""
    world = max(one.world for one in found.ranks)
    fold = -(-world // _WIDEST)
    size = -(-world // fold)
    cells = [[0] * size for _ in range(size)]
    for pair in found.pairs:
        cells[pair.sender // fold][pair.receiver // fold] += pair.size
    most = max(max(row) for row in cells)
    each = f", {fold} ranks in each row and column" if fold > 1 else ""
    yield f"bytes from sender (rows) to receiver (columns){each}; darkest: {as_bytes(most)}"
    for number, row in enumerate(cells):
        yield f"{number * fold:>5} |{''.join(2 * _shade(value, most) for value in row)}|"


def _shade(value: int, most: int) -> str:
    if not value or not most:
        return _SHADES[0]
    return _SHADES[min(len(_SHADES) - 1, 1 + int(value / most * (len(_SHADES) - 1.001)))]


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _short(seconds: float) -> str:
    if seconds >= 1.0:
        return text.duration(seconds)
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
