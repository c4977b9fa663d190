"""Submit, get, wait, cancel, suspend, resume, delete, retry, clone, replace."""

from __future__ import annotations

import re
import threading

import pytest

from mpijob import Client, JobFailed, MpiJobError, Phase
from mpijob.errors import Conflict, NotFound, QuotaExceeded, WaitTimeout
from mpijob.model import JobRef

from .builders import (
    PATIENCE,
    a_job,
    fails_on_worker_1,
    fills_the_place,
    finished,
    is_gone,
    place,
    running,
    runs_long,
    says_hello,
)


@pytest.mark.req("FR-002", "FR-SDK-001", "FR-011")
def test_a_submitted_job_is_found_by_its_name_and_succeeds(client: Client) -> None:
    submitted = client.submit(says_hello())
    assert client.get("hello").ref == submitted.ref
    state = client.wait_for_completion("hello", PATIENCE)
    assert state.phase is Phase.SUCCEEDED
    assert (state.world, state.workers_wanted, len(state.workers)) == (2, 2, 2)
    assert [rank.exit_code for rank in state.ranks] == [0, 0]
    assert client.list().items[0].ranks == (), "a list shows no single ranks"


def test_the_spec_comes_back_as_it_was_given(client: Client) -> None:
    job = says_hello(labels={"team": "cv"}, env={"LR": "0.1"}, description="a test")
    client.submit(job)
    assert client.spec("hello") == job.replace(namespace=client.namespace)


def test_an_unknown_name_is_not_found_by_any_verb(client: Client) -> None:
    for verb in (client.get, client.spec, client.cancel, client.suspend, client.resume, client.delete):
        with pytest.raises(NotFound, match="nobody"):
            verb("nobody")
    with pytest.raises(NotFound, match="nobody"):
        client.scale("nobody", 2)
    with pytest.raises(NotFound, match="nobody"):
        list(client.logs("nobody"))
    with pytest.raises(NotFound, match="nobody"):
        list(client.events("nobody"))


@pytest.mark.req("B-dryrun")
def test_a_dry_run_shows_the_plan_and_starts_nothing(client: Client) -> None:
    plan = client.submit(says_hello(slots=2), dry_run=True)
    assert (len(plan.workers), plan.world, plan.workers[1].ranks) == (2, 4, (2, 3))
    assert plan.hostfile.count("\n") == 2
    assert client.list().items == ()


def test_a_plan_handed_in_twice_is_one_job(client: Client) -> None:
    plan = client.plan(runs_long())
    who = client.backend.whoami()
    first = client.backend.submit(plan, who)
    assert client.backend.submit(plan, who) == first
    assert client.list().total == 1


def test_a_name_in_use_is_a_conflict(client: Client) -> None:
    client.submit(runs_long())
    with pytest.raises(Conflict, match="long"):
        client.submit(runs_long())
    assert client.list().total == 1


def test_of_100_identical_submits_exactly_one_is_a_job(client: Client) -> None:
    plans = [client.plan(runs_long()) for _ in range(100)]
    who = client.backend.whoami()
    outcomes: list[str] = []

    def submit(part: int) -> None:
        with Client(client.backend, settings=client.settings) as mine:
            for plan in plans[part::4]:
                try:
                    outcomes.append(mine.backend.submit(plan, who).uid)
                except MpiJobError as error:
                    outcomes.append("refused" if isinstance(error, Conflict) else error.message)

    threads = [threading.Thread(target=submit, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(outcomes) - {"refused"}) == [client.get("long").ref.uid]
    assert outcomes.count("refused") == 99
    assert client.list().total == 1


def test_two_namespaces_may_use_the_same_name(client: Client) -> None:
    one = client.submit(runs_long(namespace=place.namespaces[0]))
    two = client.submit(runs_long(namespace=place.namespaces[1]))
    client.delete("long", namespace=place.namespaces[0])
    assert is_gone(one)
    assert two.state().phase is not Phase.CANCELLED


@pytest.mark.req("SC-005", "A-edge-worker", "B-story4")
def test_waiting_on_a_failed_job_raises_and_names_the_worker(client: Client) -> None:
    client.submit(fails_on_worker_1())
    with pytest.raises(JobFailed) as caught:
        client.wait_for_completion("bad", PATIENCE)
    assert re.search("worker[ -]1", str(caught.value), re.IGNORECASE)
    assert caught.value.findings[0].worker == 1
    state = client.state("bad")
    assert state.phase is Phase.FAILED
    assert {rank.rank: rank.exit_code for rank in state.ranks}[1] == 3


def test_waiting_without_raising_returns_the_failed_state(client: Client) -> None:
    client.submit(fails_on_worker_1())
    assert client.wait("bad", PATIENCE).phase is Phase.FAILED


def test_waiting_ends_with_the_time_given(client: Client) -> None:
    running(client, runs_long())
    with pytest.raises(WaitTimeout, match=r"Running after 0\.2 s"):
        client.wait("long", 0.2)


@pytest.mark.req("FR-002", "R1")
def test_a_cancelled_job_ends_and_stays_known(client: Client) -> None:
    job = running(client, runs_long())
    assert job.cancel(grace_period=0).phase is Phase.CANCELLED
    assert job.state().finished is not None
    with pytest.raises(JobFailed, match="cancelled"):
        job.wait_for_completion(PATIENCE)


def test_cancelling_a_finished_job_changes_nothing(client: Client) -> None:
    job = finished(client, says_hello())
    assert job.cancel().phase is Phase.SUCCEEDED


def test_a_suspended_job_frees_its_place_and_resumes_as_the_next_attempt(client: Client) -> None:
    job = running(client, fills_the_place("big"))
    assert job.suspend().phase is Phase.SUSPENDED
    running(client, fills_the_place("other")).cancel(grace_period=0)
    job.resume()
    state = job.wait(PATIENCE, {Phase.RUNNING})
    assert (state.phase, state.attempt) == (Phase.RUNNING, 2)


def test_only_a_suspended_job_can_be_resumed(client: Client) -> None:
    job = running(client, runs_long())
    with pytest.raises(Conflict, match="/long is Running; only a suspended job can be resumed"):
        job.resume()


def test_a_job_that_is_suspended_again_stays_as_it_is(client: Client) -> None:
    job = running(client, runs_long())
    first = job.suspend()
    assert job.suspend().message == first.message
    assert [event.reason for event in job.events()].count("Suspended") == 1


def test_a_finished_job_cannot_be_suspended(client: Client) -> None:
    job = finished(client, says_hello())
    with pytest.raises(Conflict, match="/hello is Succeeded; only a job that has not ended can be suspended"):
        job.suspend()


@pytest.mark.req("FR-RES-004", "B-8")
def test_a_deleted_job_is_not_found_any_more(client: Client) -> None:
    job = running(client, runs_long())
    job.delete(grace_period=0)
    for verb in (client.get, client.cancel, client.suspend, client.resume, client.delete):
        with pytest.raises(NotFound):
            verb("long")
    assert is_gone(job)
    assert client.list().total == 0


@pytest.mark.req("B-retry")
def test_a_retried_job_has_the_same_configuration_and_keeps_the_old_record(client: Client) -> None:
    old = finished(client, fails_on_worker_1(labels={"team": "cv"}))
    new = old.retry()
    assert new.ref != old.ref
    assert client.get("bad").ref == new.ref
    assert new.spec == old.spec
    assert old.state().phase is Phase.FAILED


def test_only_a_job_that_has_ended_can_be_retried(client: Client) -> None:
    client.submit(runs_long())
    with pytest.raises(Conflict, match="ended"):
        client.retry("long")


def test_deleting_by_name_after_a_retry_leaves_nothing_of_that_name(client: Client) -> None:
    first = finished(client, says_hello())
    first.retry().wait(PATIENCE)
    client.delete("hello")
    with pytest.raises(NotFound):
        client.get("hello")
    assert is_gone(first)


def test_a_clone_has_the_changes_and_a_name_of_its_own(client: Client) -> None:
    finished(client, says_hello(env={"LR": "1", "SEED": "7"}))
    copy = client.clone("hello", workers=1, changes={"env.LR": 0.5})
    assert copy.name == "hello-2"
    assert (copy.spec.workers, copy.spec.env) == (1, {"LR": "0.5", "SEED": "7"})


@pytest.mark.req("B-dryrun")
def test_a_job_that_has_not_started_is_replaced_under_its_name(client: Client) -> None:
    running(client, fills_the_place("big"))
    waiting = client.submit(fills_the_place("next"))
    assert waiting.state().phase is Phase.QUEUED
    new = client.clone("next", replace=True, workers=1)
    assert waiting.state().phase is Phase.CANCELLED
    assert (client.get("next").ref, new.spec.workers) == (new.ref, 1)


def test_a_running_job_is_not_replaced(client: Client) -> None:
    job = running(client, runs_long())
    with pytest.raises(Conflict, match="Running"):
        client.clone("long", replace=True, workers=1)
    assert job.state().phase is Phase.RUNNING


def test_a_refused_replacement_leaves_the_waiting_job_alone(client: Client) -> None:
    running(client, fills_the_place("big"))
    waiting = client.submit(fills_the_place("next"))
    with pytest.raises(QuotaExceeded):
        client.clone("next", replace=True, workers=90)
    assert waiting.state().phase is Phase.QUEUED


@pytest.mark.req("PMV-002")
def test_jobs_are_deleted_in_bulk_and_each_is_accounted_for(client: Client) -> None:
    for name, team in (("a", "cv"), ("b", "cv"), ("c", "nlp")):
        client.submit(a_job(name, labels={"team": team}))
    done = client.delete_all(selector="team=cv", grace_period=0)
    assert {(one.ref.name, one.ok) for one in done} == {("a", True), ("b", True)}
    assert [state.ref.name for state in client.jobs()] == ["c"]


@pytest.mark.req("PMV-002")
def test_a_bulk_delete_takes_the_earlier_runs_of_each_job_along(client: Client) -> None:
    for name in ("twice", "twice", "once"):
        finished(client, says_hello(name=name))
    done = client.delete_all(phases=[Phase.SUCCEEDED], grace_period=0)
    assert sorted(one.ref.name for one in done if one.ok) == ["once", "twice"]
    assert client.list(runs=True).items == ()


def test_a_command_in_a_running_job_returns_its_status(client: Client) -> None:
    job = running(client, runs_long())
    assert job.execute(("sh", "-c", "exit 7"), worker=1) == 7
    with pytest.raises(NotFound, match="9"):
        job.execute(("true",), worker=9)


def test_a_uid_means_that_very_job(client: Client) -> None:
    old = finished(client, says_hello())
    new = finished(client, says_hello())
    assert client.state(old.ref).ref == old.ref
    assert client.state(JobRef(client.namespace, "hello")).ref == new.ref
