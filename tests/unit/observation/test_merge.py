"""Many streams become one, in time order, and a silent worker delays nobody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.model import LogLine, Role
from mpijob.observation.logs.live_merge import ACTIVE_NS, Merger, merged

times = st.lists(st.integers(min_value=0, max_value=1000), max_size=30)


def said(rank: int, time: int, text: str = "") -> LogLine:
    return LogLine(time=time, text=text.encode(), role=Role.RANK, rank=rank, worker=rank)


def moments(lines: list[LogLine]) -> list[int]:
    return [line.time for line in lines]


def streams_of(all_times: list[list[int]]) -> list[list[LogLine]]:
    return [[said(rank, t, str(n)) for n, t in enumerate(ts)] for rank, ts in enumerate(all_times)]


@pytest.mark.req("FR-009", "FR-OBS-002")
def test_stored_streams_come_out_in_time_order() -> None:
    streams = streams_of([[1, 4, 6], [2, 3], [], [5]])
    assert [line.time for line in merged(streams)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.thorough
@given(st.lists(times, max_size=6))
def test_merging_loses_nothing_and_keeps_the_order_of_each_stream(all_times: list[list[int]]) -> None:
    streams = streams_of(all_times)
    out = list(merged(streams))
    assert [[line for line in out if line.rank == rank] for rank in range(len(streams))] == streams


@pytest.mark.thorough
@given(st.lists(times, max_size=4), st.lists(st.integers(min_value=0, max_value=2000), max_size=10))
def test_live_merging_keeps_the_order_of_each_stream_whatever_the_clocks_do(
    all_times: list[list[int]], clock: list[int]
) -> None:
    streams, merger, out = streams_of(all_times), Merger(hold_ns=50), []
    for step, now in enumerate(clock):
        for stream in streams:
            for line in stream[step * 3 : step * 3 + 3]:
                merger.push(line)
        out += merger.ready(now)
    for stream in streams:
        for line in stream[len(clock) * 3 :]:
            merger.push(line)
    out += merger.drain()
    assert [[line for line in out if line.rank == rank] for rank in range(len(streams))] == streams


def test_a_late_line_within_the_window_is_put_in_its_place() -> None:
    merger = Merger(hold_ns=100)
    merger.push(said(0, 1000))
    assert merger.ready(1050) == []
    merger.push(said(1, 990))
    assert [line.time for line in merger.ready(1100)] == [990, 1000]


def test_a_silent_worker_does_not_hold_back_the_others() -> None:
    merger = Merger(hold_ns=100)
    merger.push(said(0, 1000))
    assert [line.rank for line in merger.ready(1100)] == [0]


def test_a_clock_that_is_an_hour_ahead_delays_no_line_beyond_the_window() -> None:
    merger = Merger(hold_ns=100)
    merger.push(said(0, 3_600_000))
    merger.push(said(0, 1001))
    assert merger.ready(1000) == []
    assert [line.time for line in merger.ready(1100)] == [3_600_000, 1001]


def test_our_own_clock_going_back_delays_nobody() -> None:
    merger = Merger(hold_ns=100)
    assert merger.ready(10_000) == []
    merger.push(said(0, 5_000))
    assert [line.time for line in merger.ready(5_000)] == [5_000]


@pytest.mark.security
def test_a_flood_within_the_window_is_shown_early_rather_than_kept() -> None:
    merger = Merger(hold_ns=10**9, most_lines=100)
    for number in range(1000):
        merger.push(said(0, number))
    assert len(merger.ready(1000)) == 900
    assert len(merger) == 100


def test_while_one_stream_speaks_alone_nothing_is_held_back() -> None:
    merger = Merger(hold_ns=100)
    merger.push(said(0, 1000), "launcher")
    merger.push(said(1, 1001), "launcher")
    assert moments(merger.ready(1002)) == [1000, 1001]
    merger.push(said(2, 1010), "worker")
    assert merger.ready(1011) == []  # the launcher has spoken lately: its line may be on the way
    merger.push(said(0, 1005), "launcher")
    assert moments(merger.ready(1111)) == [1005, 1010]
    later = 1111 + ACTIVE_NS
    merger.push(said(0, later), "launcher")
    assert moments(merger.ready(later + 1)) == [later]  # the worker has been silent for long
