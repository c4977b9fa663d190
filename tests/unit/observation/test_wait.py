"""A wait is estimated from what is known, and not at all from nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.model.status.forecast import Forecast
from mpijob.observation.state.queue_wait import MOST, Queue, Running, Waiting, bounded, forecasts

FULL = {"cpu": 0.0}
HALF = {"cpu": 2.0}
JOB = Waiting(needs=HALF)


def runs(elapsed: float = 0.0, *durations: float, deadline: float | None = None) -> Running:
    return Running(elapsed_seconds=elapsed, holds=HALF, durations=durations, deadline_seconds=deadline)


def waits(*durations: float, deadline: float | None = None, **fields: float) -> Waiting:
    return Waiting(needs=HALF, durations=durations, deadline_seconds=deadline, **fields)  # type: ignore[arg-type]  # numbers


def last(
    running: Sequence[Running] = (), ahead: Sequence[Waiting] = (), job: Waiting = JOB, **fields: object
) -> Forecast:
    queue = Queue(free=FULL, running=tuple(running), waiting=(*ahead, job), **fields)  # type: ignore[arg-type]  # passed through
    return forecasts(queue)[-1]


def test_without_any_knowledge_there_is_no_number_and_it_says_what_is_missing() -> None:
    assert last([runs(10.0)]) == Forecast(1, None, None, "1 job running, with no deadline and no earlier run")


def test_a_job_that_fits_now_and_has_nobody_ahead_does_not_wait() -> None:
    found = forecasts(Queue(free=HALF, waiting=(JOB,)))
    assert found == (Forecast(1, 0.0, (0.0, 0.0), "the resources that it needs are free now"),)


@pytest.mark.req("FR-RES-005", "B-story1-wait")
def test_the_rest_of_a_running_job_is_judged_by_those_that_ran_as_long() -> None:
    found = last([runs(40.0, 10.0, 100.0, 100.0, 100.0)])
    assert (found.seconds, found.span) == (60.0, (45.0, 75.0)), "four runs tell no more than this"
    assert found.basis == "1 job running, estimated from 4 earlier runs of the same programs"


def test_what_ended_here_times_those_that_never_ran_before() -> None:
    found = last([runs(40.0)], usual=(100.0, 100.0, 100.0))
    assert found.seconds == 60.0
    assert found.basis == "1 job running, estimated from 3 jobs of any program that ended here"


def test_a_deadline_bounds_the_rest_and_is_no_estimate() -> None:
    found = last([runs(40.0, deadline=100.0)])
    assert (found.seconds, found.span) == (None, (0.0, 60.0))
    assert found.basis == "1 job running; at most, by deadlines: 1 program among them has not run before"
    timed = last([runs(40.0, 500.0, deadline=100.0)])
    assert (timed.seconds, timed.span) == (60.0, (45.0, 75.0))
    assert timed.basis == "1 job running, estimated from 1 earlier run of the same programs and 1 deadline"


def test_every_job_ahead_takes_its_turn() -> None:
    found = last([runs(0.0, 100.0)], [waits(100.0), waits(100.0)])
    assert (found.position, found.seconds) == (3, 300.0)
    assert found.basis == (
        "1 job running and 2 jobs ahead of it, estimated from 3 earlier runs of the same programs"
    )


def test_jobs_ahead_run_side_by_side_where_there_is_room() -> None:
    assert last([runs(0.0, 100.0), runs(50.0, 100.0)], [waits(100.0)]).seconds == 100.0


def test_the_range_is_wide_when_jobs_differ() -> None:
    found = last([runs(0.0, 10.0, 60.0, 1000.0)])
    assert found.span is not None
    assert found.span[0] < (found.seconds or 0.0) == 60.0 < found.span[1]


def test_the_range_is_never_narrower_than_earlier_runs_can_tell() -> None:
    few, many = last([runs(0.0, *[100.0] * 2)]), last([runs(0.0, *[100.0] * 50)])
    assert (few.span, many.span) == ((75.0, 125.0), (90.0, 110.0))
    assert last([runs(0.0, 4.0)]).span == (2.0, 6.0)


def test_a_job_longer_than_any_before_is_expected_to_last_about_as_long_again() -> None:
    assert last([runs(500.0, 10.0)]).seconds == 500.0


def test_a_job_that_can_never_fit_gets_no_number() -> None:
    found = last([runs(0.0, 10.0)], job=Waiting(needs={"cpu": 64.0}))
    assert (found.seconds, found.span) == (None, None)
    assert found.basis == "1 job running; what they hold is not enough for it"


def test_a_higher_priority_comes_first_whatever_the_age() -> None:
    queue = Queue(free=FULL, running=(runs(0.0, 10.0),), waiting=(waits(10.0), waits(10.0, priority=5)))
    assert [(one.position, one.seconds) for one in forecasts(queue)] == [(2, 20.0), (1, 10.0)]


def test_among_equals_the_owner_who_holds_least_comes_first_where_that_is_the_rule() -> None:
    mine = Running(elapsed_seconds=0.0, holds=HALF, durations=(10.0,), owner="me")
    longer = Running(elapsed_seconds=0.0, holds=HALF, durations=(90.0,), owner="me")
    queue = Queue(
        free=FULL,
        running=(mine, longer),
        waiting=(
            Waiting(needs=HALF, durations=(10.0,), owner="me"),
            Waiting(needs=HALF, durations=(10.0,), owner="you"),
        ),
        fair=True,
    )
    assert [(one.position, one.seconds) for one in forecasts(queue)] == [(2, 20.0), (1, 10.0)]


@pytest.mark.parametrize(("strict", "seconds"), [(True, 20.0), (False, 0.0)])
def test_a_small_job_overtakes_a_large_one_only_where_the_queue_lets_it(strict: bool, seconds: float) -> None:
    large, small = Waiting(needs={"cpu": 3.0}, durations=(10.0,)), Waiting(needs={"cpu": 1.0})
    running = Running(elapsed_seconds=0.0, holds={"cpu": 3.0}, durations=(10.0,))
    queue = Queue(free={"cpu": 1.0}, running=(running,), waiting=(large, small), strict=strict)
    found = forecasts(queue)[1]
    assert found.seconds == (10.0 if strict else seconds)


def test_a_namespace_at_its_quota_holds_up_only_its_own_jobs() -> None:
    own = {"cpu": 1.0, "tight/jobs": 1.0}
    running = Running(elapsed_seconds=0.0, holds=own, durations=(30.0,))
    queue = Queue(
        free={"cpu": 1.0, "tight/jobs": 0.0},
        private=frozenset({"tight/jobs"}),
        running=(running,),
        waiting=(Waiting(needs=own, durations=(5.0,)), Waiting(needs={"cpu": 1.0}, durations=(5.0,))),
    )
    assert [one.seconds for one in forecasts(queue)] == [30.0, 0.0]


def test_a_job_that_may_not_start_yet_holds_nobody_up() -> None:
    queue = Queue(free=HALF, waiting=(waits(5.0, delay_seconds=60.0), waits(5.0)))
    assert [one.seconds for one in forecasts(queue)] == [60.0, 0.0]


def test_what_is_not_counted_in_the_queue_is_not_waited_for() -> None:
    job = Waiting(needs={"cpu": 1.0, "memory": 1e12})
    assert forecasts(Queue(free={"cpu": 1.0}, waiting=(job,)))[0].seconds == 0.0


def test_where_jobs_ahead_cannot_be_seen_no_number_is_told() -> None:
    found = last([runs(0.0, 10.0)], unseen=3)
    assert (found.position, found.seconds, found.span) == (4, None, None)
    assert found.basis == "3 jobs ahead of it cannot be seen, so the start time is unknown"


def test_behind_very_many_nobody_can_tell() -> None:
    found = last([runs(0.0, 10.0)], [waits(1.0)] * (MOST + 5))
    assert (found.position, found.seconds, found.span) == (MOST + 6, None, None)
    assert found.basis == f"more than {MOST} jobs before it"


def test_only_as_many_are_played_out_as_are_wanted_and_the_others_have_their_places() -> None:
    queue = Queue(free=FULL, running=(runs(0.0, 10.0),), waiting=(waits(1.0),) * 3)
    first, second, third = forecasts(queue, 2)
    assert [one.position for one in (first, second, third)] == [1, 2, 3]
    assert None not in (first.seconds, second.seconds)
    assert (third.seconds, third.basis) == (None, "more than 2 jobs before it")


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0.1, 1e4), st.floats(0, 8)), max_size=8),
    st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0, 8), st.integers(-2, 2)), min_size=1, max_size=8),
    st.booleans(),
)
def test_estimates_lie_in_their_range_and_places_are_a_line(
    running: list[tuple[float, float, float]], waiting: list[tuple[float, float, int]], strict: bool
) -> None:
    queue = Queue(
        free={"cpu": 4.0},
        running=tuple(
            Running(elapsed_seconds=elapsed, holds={"cpu": cpu}, durations=(lasts,))
            for elapsed, lasts, cpu in running
        ),
        waiting=tuple(
            Waiting(needs={"cpu": cpu}, durations=(lasts,), priority=priority)
            for lasts, cpu, priority in waiting
        ),
        strict=strict,
    )
    found = forecasts(queue)
    assert sorted(one.position or 0 for one in found) == [*range(1, len(waiting) + 1)]
    for one in found:
        assert one.basis
        if one.seconds is not None:
            assert one.span is not None
            assert 0.0 <= one.span[0] <= one.seconds <= one.span[1]


@pytest.mark.parametrize(
    ("known", "latest", "seconds", "span"),
    [
        (Forecast(1, None, None, "why"), 300.0, None, (0.0, 300.0)),
        (Forecast(1, None, None, ""), -5.0, None, (0.0, 0.0)),
        (Forecast(1, None, (0.0, 100.0), ""), 300.0, None, (0.0, 100.0)),
        (Forecast(1, 200.0, (100.0, 400.0), ""), 300.0, 200.0, (100.0, 300.0)),
        (Forecast(1, 200.0, (100.0, 400.0), ""), 150.0, 150.0, (100.0, 150.0)),
        (Forecast(1, 200.0, (100.0, 400.0), ""), 50.0, 50.0, (50.0, 50.0)),
        (Forecast(1, 200.0, (100.0, 400.0), ""), 500.0, 200.0, (100.0, 400.0)),
    ],
)
def test_an_estimate_goes_no_further_than_what_is_known_otherwise(
    known: Forecast, latest: float, seconds: float | None, span: tuple[float, float]
) -> None:
    found = bounded(known, latest, "somebody expects it")
    assert (found.seconds, found.span) == (seconds, span)
    assert ("somebody" in found.basis) is (known.seconds is None)
