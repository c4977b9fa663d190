"""Groups of which only so many jobs run at once, and jobs that are deleted some time after their end.

A cluster refuses groups, and its controller deletes jobs: tests/unit/backends/kubernetes and tests/e2e/cluster.
"""

from __future__ import annotations

import time

import pytest

from mpijob import Client, MPIJob, Phase
from mpijob.model.spec.job import Concurrency

from .builders import PATIENCE, a_job, fails_on_worker_1, is_gone, runs_long, says_hello

TWO_AT_ONCE = Concurrency(limit=2)


@pytest.mark.req("FR-028")
def test_of_an_array_only_so_many_jobs_run_at_once_and_the_others_follow(client: Client) -> None:
    job = a_job("sweep", "sleep 1", workers=1, concurrency=TWO_AT_ONCE)
    jobs = client.array(job, {"env.LR": ["1", "2", "3", "4", "5"]})
    states = [one.wait_for_completion(PATIENCE) for one in jobs]
    assert {one.spec.concurrency for one in jobs} == {Concurrency(limit=2, group="sweep")}
    for state in states:
        begun = state.started or 0.0
        beside = [one for one in states if (one.started or 0.0) <= begun < (one.finished or 0.0)]
        assert len(beside) <= 2, "never more than two hold resources"


def test_a_job_of_a_full_group_waits_for_it_and_lets_others_pass(client: Client) -> None:
    one_at_once = Concurrency(limit=1, group="alone")
    first = client.submit(runs_long("first", concurrency=one_at_once))
    first.wait(PATIENCE, {Phase.RUNNING})
    second = client.submit(says_hello("second", concurrency=one_at_once))
    assert client.submit(says_hello("passes")).wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
    waiting = second.state()
    assert (waiting.phase, waiting.started) == (Phase.QUEUED, None)
    assert waiting.waiting_for == "Waiting for a job of group 'alone' to end: 1 job may run at once"
    first.cancel(grace_period=0)
    assert second.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED


def test_a_group_is_one_of_its_namespace(client: Client) -> None:
    one_at_once = Concurrency(limit=1, group="shared")
    here = client.submit(runs_long("here", concurrency=one_at_once, namespace="team-a"))
    here.wait(PATIENCE, {Phase.RUNNING})
    there = client.submit(says_hello("there", concurrency=one_at_once, namespace="team-b"))
    assert there.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED


@pytest.mark.req("FR-RES-004")
@pytest.mark.parametrize(
    "job", [says_hello("brief", ttl_seconds=1.5), fails_on_worker_1("bad", ttl_seconds=1.5)]
)
def test_a_job_is_deleted_so_long_after_its_end(client: Client, job: MPIJob) -> None:
    handle, stays = client.submit(job), client.submit(says_hello("stays"))
    ended = handle.wait(PATIENCE)
    assert ended.phase.final
    assert not is_gone(handle)
    end = time.monotonic() + PATIENCE
    while not is_gone(handle) and time.monotonic() < end:
        client.backend.pause(0.2)
    assert stays.state().phase is Phase.SUCCEEDED
    assert [state.ref.name for state in client.jobs()] == ["stays"]
