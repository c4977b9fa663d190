"""A wait is estimated from what is known, and not at all from nothing."""

import pytest

from mpijob.model import Amounts
from mpijob.observation.state.queue_wait import Estimate, Running, Waiting, estimate

HALF = Amounts(cores=2)
JOB = Waiting(HALF)
NOTHING = Amounts()


def test_without_any_knowledge_there_is_no_estimate() -> None:
    assert estimate(JOB, free=NOTHING, finished=[], running=[Running(10.0, HALF)]) is None


def test_a_job_that_fits_now_and_has_nobody_ahead_does_not_wait() -> None:
    assert estimate(JOB, free=HALF, finished=[]) == Estimate(0.0, 0.0, 0.0, 0)


@pytest.mark.req("FR-RES-005", "B-story1-wait")
def test_the_rest_of_a_running_job_is_judged_by_those_that_ran_as_long() -> None:
    found = estimate(JOB, free=NOTHING, finished=[10.0, 100.0, 100.0, 100.0], running=[Running(40.0, HALF)])
    assert found == Estimate(seconds=60.0, low=60.0, high=60.0, sample_size=4)


def test_a_deadline_bounds_the_rest() -> None:
    found = estimate(JOB, free=NOTHING, finished=[], running=[Running(40.0, HALF, deadline_seconds=100.0)])
    assert found == Estimate(60.0, 60.0, 60.0, 0)


def test_every_job_ahead_takes_its_turn() -> None:
    found = estimate(
        JOB,
        free=NOTHING,
        finished=[100.0],
        running=[Running(0.0, HALF)],
        ahead=[Waiting(HALF), Waiting(HALF)],
    )
    assert found is not None
    assert found.seconds == 300.0


def test_jobs_ahead_run_side_by_side_where_there_is_room() -> None:
    whole = [Running(0.0, HALF), Running(50.0, HALF)]
    found = estimate(JOB, free=NOTHING, finished=[100.0], running=whole, ahead=[Waiting(HALF)])
    assert found is not None
    assert found.seconds == 100.0


def test_the_range_is_wide_when_jobs_differ() -> None:
    found = estimate(JOB, free=NOTHING, finished=[10.0, 60.0, 1000.0], running=[Running(0.0, HALF)])
    assert found is not None
    assert found.low < found.seconds == 60.0 < found.high


def test_a_job_longer_than_any_before_is_expected_to_last_about_as_long_again() -> None:
    found = estimate(JOB, free=NOTHING, finished=[10.0], running=[Running(500.0, HALF)])
    assert found is not None
    assert found.seconds == 500.0


def test_a_job_that_can_never_fit_gets_no_number() -> None:
    assert estimate(Waiting(Amounts(cores=64)), free=HALF, finished=[10.0]) is None
