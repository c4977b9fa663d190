"""Room, queue, priorities, deadlines, retry policy."""

from __future__ import annotations

import re

import pytest

from mpijob import Client, JobFailed, Phase
from mpijob.errors import Conflict, QuotaExceeded, Unsupported
from mpijob.model import Retry

from .builders import (
    PATIENCE,
    a_job,
    fails_on_worker_1,
    fills_the_place,
    finished,
    place,
    placed,
    running,
    says_hello,
    too_large,
)


@pytest.mark.req("SC-006", "FR-027", "D-quota")
def test_a_job_larger_than_the_place_is_refused_with_numbers(client: Client) -> None:
    asked, there = 4 * place.millicores / 1000, place.millicores / 1000
    with pytest.raises(QuotaExceeded, match=rf"{asked:g}.*{there:g}"):
        client.submit(too_large())
    assert client.list().total == 0


@pytest.mark.req("FR-RES-005", "FR-028", "E-gang")
def test_a_job_that_finds_no_room_waits_and_knows_its_place(client: Client) -> None:
    running(client, fills_the_place("first"))
    client.submit(fills_the_place("second"))
    client.submit(fills_the_place("third"))
    third = placed(client, "third")
    assert (third.phase, third.queue_position) == (Phase.QUEUED, 2)
    second = placed(client, "second")
    assert second.queue_position == 1
    assert not any(worker.phase.active for worker in second.workers), "a job starts wholly or not at all"


def test_waiting_jobs_start_in_the_order_of_their_submission(client: Client) -> None:
    for name in ("first", "second", "third"):
        client.submit(fills_the_place(name, "true"))
    started = {
        name: client.wait_for_completion(name, PATIENCE).started or 0.0
        for name in ("third", "second", "first")
    }
    assert started["first"] < started["second"] < started["third"]


def test_a_higher_priority_starts_before_those_that_wait(client: Client) -> None:
    first = running(client, fills_the_place("first"))
    client.submit(fills_the_place("usual", "true"))
    client.submit(fills_the_place("urgent", "true", priority=100))
    assert placed(client, "urgent").queue_position == 1
    first.cancel(grace_period=0)
    usual = client.wait_for_completion("usual", PATIENCE)
    assert (client.wait_for_completion("urgent", PATIENCE).started or 0.0) < (usual.started or 0.0)


def test_a_job_that_passes_its_deadline_fails(client: Client) -> None:
    client.submit(a_job("late", "sleep 300", deadline_seconds=1.0))
    with pytest.raises(JobFailed, match="of 1 s"):
        client.wait_for_completion("late", PATIENCE)


@pytest.mark.req("PMV-005")
def test_a_failed_job_is_tried_again_as_often_as_it_says(client: Client) -> None:
    job = client.submit(fails_on_worker_1(retry=Retry(limit=1, backoff_seconds=0.1)))
    with client.reconciling(job.ref):
        state = job.wait(PATIENCE)
    assert (state.phase, state.attempt, state.attempts_allowed) == (Phase.FAILED, 2, 2)
    assert "Retrying" in [event.reason for event in client.events("bad")]


@pytest.mark.req("PMV-005")
@pytest.mark.parametrize(("cause", "attempts"), [("program", 2), ("worker_lost", 1)])
def test_a_failed_job_is_tried_again_only_for_the_causes_it_names(
    client: Client, cause: str, attempts: int
) -> None:
    wanted = Retry(limit=1, backoff_seconds=0.1, on=(cause,))
    if place.batch_system:  # its allocation retries, and no cause is known there
        with pytest.raises(Unsupported, match=r"retry\.on"):
            client.submit(fails_on_worker_1(retry=wanted))
        return
    job = client.submit(fails_on_worker_1(retry=wanted))
    with client.reconciling(job.ref):
        state = job.wait(PATIENCE)
    assert (state.phase, state.attempt, state.attempts_allowed) == (Phase.FAILED, attempts, 2)
    assert job.spec.retry.on == (cause,)


def test_small_jobs_run_beside_each_other(client: Client) -> None:
    one, two = running(client, a_job("one", "sleep 300")), running(client, a_job("two", "sleep 300"))
    assert (one.phase, two.phase) == (Phase.RUNNING, Phase.RUNNING)


def test_a_cancelled_waiting_job_never_starts(client: Client) -> None:
    first = running(client, fills_the_place("first"))
    second = client.submit(fills_the_place("second"))
    second.cancel()
    first.cancel(grace_period=0)
    client.submit(says_hello()).wait_for_completion(PATIENCE)
    assert second.state().started is None


def test_a_selection_counts_only_what_it_selects(client: Client) -> None:
    for name, team in (("a", "cv"), ("b", "nlp"), ("c", "cv")):
        finished(client, says_hello(name=name, labels={"team": team}))
    page = client.list(selector="team=cv", limit=1)
    assert (page.total, [state.ref.name for state in page.items]) == (2, ["c"])
    assert [state.ref.name for state in client.list(selector="team=cv", after=page.after).items] == ["a"]


@pytest.mark.req("PMV-004")
def test_a_job_starts_when_the_one_before_it_has_succeeded_and_not_earlier(client: Client) -> None:
    first = client.submit(a_job("first", "sleep 2"))
    second = first.then(says_hello("second"))
    waiting = second.state()
    assert (waiting.phase, waiting.started) == (Phase.QUEUED, None)
    assert waiting.message == "Waiting for job 'first' to succeed"
    with client.reconciling(second.ref):
        assert second.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
    assert (first.state().finished or 0.0) <= (second.state().started or 0.0)
    assert second.spec.after == ("first",)


@pytest.mark.req("PMV-004")
def test_what_waits_for_a_job_that_fails_is_never_started_and_says_why(client: Client) -> None:
    bad = client.submit(fails_on_worker_1())
    following = bad.then(says_hello("next"))
    last = following.then(says_hello("last"))
    never = "not started: job 'next', which it waits for, failed"
    with client.reconciling(following.ref, last.ref), pytest.raises(JobFailed, match=never) as failed:
        last.wait_for_completion(PATIENCE)
    assert "not started: job 'bad', which it waits for, failed" in str(failed.value)
    assert last.state().started is None
    assert "not started: job 'bad', which it waits for, failed" in client.state("next").message


@pytest.mark.req("PMV-004")
def test_a_job_cannot_wait_for_one_that_is_not_there_or_has_failed(client: Client) -> None:
    with pytest.raises(Conflict, match="depends on 'nobody', which does not exist"):
        client.submit(says_hello(after=("nobody",)))
    finished(client, fails_on_worker_1())
    with pytest.raises(Conflict, match="depends on 'bad', which is Failed: it would never start"):
        client.submit(says_hello(after=("bad",)))
    assert client.list().total == 1


@pytest.mark.req("PMV-004")
def test_a_job_may_wait_for_another_to_fail_or_to_end_at_all(client: Client) -> None:
    bad = client.submit(fails_on_worker_1())
    cleans_up = bad.then(says_hello("cleans-up"), on="failed")
    tells = bad.then(says_hello("tells"), on="any")
    waiting = tells.state()
    if waiting.phase is Phase.QUEUED:  # a loaded machine may look too late
        assert waiting.message == "Waiting for job 'bad' to end"
    with client.reconciling(cleans_up.ref, tells.ref):
        for job in (cleans_up, tells):
            assert job.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
            assert (bad.state().finished or 0.0) <= (job.state().started or 0.0)
    assert (cleans_up.spec.after, tells.spec.after) == (("failed:bad",), ("any:bad",))


@pytest.mark.req("PMV-004")
def test_what_waits_for_a_failure_is_never_started_when_there_is_none(client: Client) -> None:
    good = client.submit(says_hello())
    following = good.then(says_hello("next"), on="failed")
    never = "not started: job 'hello', which it waits for to fail, succeeded"
    with client.reconciling(following.ref), pytest.raises(JobFailed, match=never):
        following.wait_for_completion(PATIENCE)
    assert following.state().started is None
    with pytest.raises(Conflict, match="depends on the failure of 'hello', which is Succeeded"):
        client.submit(says_hello("other", after=("failed:hello",)))


@pytest.mark.req("FR-RES-005", "A-edge-gpu")
def test_a_waiting_job_tells_its_place_when_it_starts_and_why_alike_in_every_verb(client: Client) -> None:
    script = "sleep 15" if place.image else "sleep 8" if place.batch_system else "sleep 3"
    finished(client, fills_the_place("taught", script))  # how long the command takes
    first = client.submit(fills_the_place("first", script))
    if place.starts_later:
        first.wait(PATIENCE, {Phase.RUNNING})
    for name in ("second", "third"):
        client.submit(fills_the_place(name, script))
    third = placed(client, "third")
    if third.phase is not Phase.QUEUED:
        pytest.fail("the jobs ended before anybody looked")
    listed = {state.ref.name: state for state in client.list(phases=(Phase.QUEUED,)).items}
    assert {name: state.queue_position for name, state in listed.items()} == {"second": 1, "third": 2}
    for state in (*listed.values(), third):
        assert state.wait_basis
        assert state.wait_estimate_seconds is not None, state.wait_basis
        assert state.wait_range_seconds is not None
        low, high = state.wait_range_seconds
        assert 0.0 <= low <= state.wait_estimate_seconds <= high
    assert (listed["second"].wait_estimate_seconds or 0.0) < (listed["third"].wait_estimate_seconds or 0.0)
    assert "earlier run" in third.wait_basis


@pytest.mark.req("FR-RES-005")
def test_without_anything_to_go_by_a_waiting_job_says_so_instead_of_a_number(client: Client) -> None:
    running(client, fills_the_place("first"))
    client.submit(fills_the_place("second"))
    state = placed(client, "second")
    assert (state.queue_position, state.wait_estimate_seconds) == (1, None)
    assert re.search("no earlier run|not run before", state.wait_basis)
    if place.batch_system:  # they bound the wait
        low, high = state.wait_range_seconds or (-1.0, -1.0)
        assert low == 0.0 < high
    else:
        assert state.wait_range_seconds is None
    first = client.submit(fills_the_place("bounded", deadline_seconds=600.0), dry_run=True)
    assert first.wait_estimate_seconds is None


@pytest.mark.req("FR-RES-005")
def test_what_was_estimated_is_kept_and_compared_with_what_came(client: Client) -> None:
    finished(client, fills_the_place("taught", "sleep 2"))
    client.submit(fills_the_place("first", "sleep 2"))
    second = client.submit(fills_the_place("second", "sleep 2"))
    state = second.wait(PATIENCE)
    assert state.estimated is not None
    assert state.estimated.basis
    found = client.wait_accuracy(since=1e9)  # one engine has a clock of its own
    assert found.backtest.jobs >= 1
    outcomes = {one.ref.name: one for one in found.outcomes}
    assert "second" in outcomes if place.starts_later else [*outcomes] == ["second"]
    assert found.told.jobs == len(outcomes)
    assert outcomes["second"].forecast == state.estimated
    assert outcomes["second"].waited_seconds == pytest.approx(state.queued_seconds(0.0), abs=0.01)
