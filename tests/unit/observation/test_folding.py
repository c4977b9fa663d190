"""Lines that people read as one, and the whole way of lines through a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.model import Level, LogLine, LogQuery, Mark, Role
from mpijob.observation.logs.folding import LONGEST_BYTES, RepeatFolder, last_state
from mpijob.observation.logs.pipeline import LogPipeline, select

SECOND = 1_000_000_000


def said(rank: int, text: str | bytes, time: int = 0, **more: Any) -> LogLine:
    data = text.encode() if isinstance(text, str) else text
    return LogLine(time=time, text=data, role=Role.RANK, rank=rank, worker=rank, **more)


def chosen(lines: Iterable[LogLine], **query: Any) -> list[LogLine]:
    return [*select(lines, LogQuery(**query))]


def unfolded(lines: Iterable[LogLine], rank: int) -> list[bytes]:
    return [line.text for line in lines if line.rank == rank or rank in line.ranks]


# -- ranks in chorus ------------------------------------------------------------------------------
@pytest.mark.req("FR-021")
def test_what_sixteen_ranks_say_alike_is_one_line() -> None:
    lines = [said(rank, text, time) for time, text in enumerate(("a", "b")) for rank in range(16)]
    folded = chosen(lines, fold=True)
    assert [(line.text, line.ranks, line.source) for line in folded] == [
        (b"a", tuple(range(16)), "Rank-0-15"),
        (b"b", tuple(range(16)), "Rank-0-15"),
    ]


def test_a_line_of_one_rank_alone_stays_as_it_is() -> None:
    assert chosen([said(0, "a"), said(1, "b")], fold=True) == [said(0, "a"), said(1, "b")]


def test_what_is_said_again_later_is_not_the_same_chorus() -> None:
    lines = [said(0, "a", 0), said(1, "a", 10 * SECOND)]
    assert [line.ranks for line in chosen(lines, fold=True)] == [(), ()]


def test_streams_and_attempts_are_told_apart() -> None:
    lines = [said(0, "a"), said(1, "a", stream="stderr"), said(2, "a", attempt=2)]
    assert chosen(lines, fold=True) == lines


texts = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=40)


@pytest.mark.thorough
@given(texts, st.integers(1, 5))
def test_folding_loses_nothing_and_keeps_the_order_of_each_rank(
    heard: list[tuple[int, str]], most: int
) -> None:
    lines = [said(rank, text, at) for at, (rank, text) in enumerate(heard)]
    fold = RepeatFolder(most=most)
    folded = [out for line in lines for out in fold.feed(line)] + [*fold.rest(None)]
    for rank in range(4):
        assert unfolded(folded, rank) == [line.text for line in lines if line.rank == rank]


def test_live_a_chorus_waits_only_a_moment() -> None:
    sieve = LogPipeline(LogQuery(fold=True))
    now = 1000 * SECOND
    assert [*sieve.live([said(0, "a", now), said(1, "a", now)], now)] == []
    assert [*sieve.live([], now + SECOND // 10)] == []
    (line,) = sieve.live([], now + SECOND // 2)
    assert line.ranks == (0, 1)
    assert [*sieve.live([], now + SECOND)] == []


# -- bars and long lines --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "state"),
    [
        (b"\r10%\r50%\r100%", b"100%"),
        (b"\r10%\r", b"10%"),
        (b"done\r", b"done"),
        (b"plain", b"plain"),
        (b"\r\r", b""),
        (b"50%\r   ", b"50%"),
    ],
)
def test_a_bar_is_shown_as_its_last_state(text: bytes, state: bytes) -> None:
    assert last_state(text) == state
    assert [line.text for line in chosen([said(0, text)], tidy=True)] == [state]


def test_a_bar_in_pieces_is_one_line() -> None:
    pieces = [said(0, "\r10%\r", partial=True), said(1, "other"), said(0, "\r90%", partial=True), said(0, "")]
    assert [(line.rank, line.text) for line in chosen(pieces, tidy=True)] == [(1, b"other"), (0, b"90%")]


def test_live_a_bar_that_moves_is_shown_now_and_then() -> None:
    pieces = [said(0, f"\r{at}%\r", at * SECOND, partial=True) for at in range(10, 20)]
    shown = chosen([*pieces, said(0, "done", 20 * SECOND)], tidy=True, follow=True)
    assert [line.text for line in shown] == [b"10%", b"15%", b"done"]


def test_the_pieces_of_a_long_line_are_put_together_and_a_pattern_is_found_across_them() -> None:
    pieces = [said(0, "x" * 100 + "nee", partial=True), said(1, "b"), said(0, "dle")]
    (line,) = chosen(pieces, tidy=True, regex="needle")
    assert (len(line.text), line.partial) == (106, False)


@pytest.mark.security
def test_a_line_without_end_is_cut_and_says_so() -> None:
    pieces = [said(0, b"x" * 16384, partial=True) for _ in range(100)] + [said(0, "end")]
    (line,) = chosen(pieces, tidy=True)
    left_out = 100 * 16384 + 3 - LONGEST_BYTES
    assert line.text.endswith(f"… {left_out} more bytes of this line are not shown".encode())
    assert Mark.CUT in line.marks
    assert len(line.text) < LONGEST_BYTES + 100


def test_a_line_that_never_ended_is_shown_at_the_end() -> None:
    assert [line.text for line in chosen([said(0, "half", partial=True)], tidy=True)] == [b"half"]


# -- context, find, tail --------------------------------------------------------------------------
NUMBERED = [said(0, str(number), number) for number in range(20)]


def test_lines_around_a_match_come_along_and_gaps_between_them_are_marked() -> None:
    shown = chosen(NUMBERED, regex="^(5|6|15)$", before=1, after=2)
    assert [line.text.decode() for line in shown] == ["4", "5", "6", "7", "8", "14", "15", "16", "17"]
    marks = {line.text.decode(): line.marks for line in shown}
    assert marks["4"] == marks["7"] == (Mark.CONTEXT,)
    assert marks["5"] == marks["6"] == (Mark.MATCH,)
    assert marks["14"] == (Mark.CONTEXT, Mark.APART)


def test_what_is_found_is_marked_and_nothing_is_left_out() -> None:
    shown = chosen(NUMBERED, find="^1$")
    assert len(shown) == 20
    assert [line.text for line in shown if Mark.MATCH in line.marks] == [b"1"]


def test_the_tail_is_the_last_of_what_is_wanted() -> None:
    assert [line.text for line in chosen(NUMBERED, regex="1", tail=2)] == [b"18", b"19"]
    assert [line.ranks for line in chosen([said(r, "a") for r in range(4)], tail=3, fold=True)] == [(1, 2, 3)]


def test_following_begins_with_the_tail_of_what_was_said() -> None:
    sieve = LogPipeline(LogQuery(follow=True, fold=True))
    past = [*sieve.history(NUMBERED, 2)]
    assert [line.text for line in [*past, *sieve.live([said(0, "new", 99 * SECOND)], None)]] == [
        b"18", b"19", b"new",
    ]  # fmt: skip


queries = st.builds(
    LogQuery,
    tidy=st.booleans(),
    fold=st.booleans(),
    follow=st.booleans(),
    regex=st.sampled_from(["", "a", "."]),
    find=st.sampled_from(["", "b"]),
    level=st.sampled_from([None, Level.INFO]),
    before=st.integers(0, 2),
    after=st.integers(0, 2),
    tail=st.sampled_from([None, 0, 3]),
)
anything = st.builds(
    said,
    rank=st.integers(0, 2),
    text=st.binary(max_size=20),
    time=st.integers(0, 5 * SECOND),
    partial=st.booleans(),
    stream=st.sampled_from(["stdout", "stderr"]),
)


@pytest.mark.thorough
@given(st.lists(anything, max_size=30), queries)
def test_no_log_and_no_query_breaks_the_sieve(lines: list[LogLine], query: LogQuery) -> None:
    shown = [*select(lines, query)]
    assert len(shown) <= 2 * len(lines)
    if not (query.regex or query.level or query.tail is not None or query.tidy):
        for rank in range(3):
            assert unfolded(shown, rank) == [line.text for line in lines if line.rank == rank]
