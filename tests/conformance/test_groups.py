"""Groups of workers with other slots and resources: one world, each rank on the worker and in the group of the plan.

An engine that cannot do it refuses with a reason: tests/unit/formats/test_groups.py.
"""

from __future__ import annotations

import pytest

from mpijob import Client, Phase
from mpijob.errors import InvalidJob, QuotaExceeded
from mpijob.model import Elastic, MPIJob, Retry, WorkerGroup
from mpijob.model.spec.quantity import parse

from .builders import PATIENCE, a_job, finished, place

SAYS = 'echo "rank $MPIJOB_RANK of $MPIJOB_WORLD in group $MPIJOB_GROUP."'
RANKS = {0: (0, ""), 1: (1, ""), 2: (2, "wide"), 3: (2, "wide")}  # by rank: worker and group


def of_two_kinds(name: str, script: str = SAYS, **fields: object) -> MPIJob:
    """Return a job of two workers with a rank each, and a third one with two ranks and more memory."""
    wide = WorkerGroup(name="wide", workers=1, slots=2, resources=place.share(1 / 4, "192Mi"))
    resources = place.share(1 / 8, "128Mi")
    return a_job(name, script, workers=3, groups=(wide,), resources=resources, **fields)


def said(client: Client, name: str) -> set[str]:
    return {line.text.decode() for line in client.logs(name) if line.text.startswith(b"rank ")}


@pytest.mark.req("FR-003")
def test_the_workers_of_two_groups_are_one_world_and_each_rank_is_where_the_plan_has_it(
    client: Client,
) -> None:
    planned = {
        rank: (worker.index, worker.group)
        for worker in client.plan(of_two_kinds("kinds")).workers
        for rank in worker.ranks
    }
    assert planned == RANKS
    job = finished(client, of_two_kinds("kinds"))
    state = job.state()
    assert (state.phase, state.world) == (Phase.SUCCEEDED, 4)
    assert [(worker.index, worker.group) for worker in state.workers] == [(0, ""), (1, ""), (2, "wide")]
    group = {worker.index: worker.group for worker in state.workers}
    assert {rank.rank: (rank.worker, group[rank.worker]) for rank in state.ranks} == RANKS
    assert said(client, "kinds") == {
        f"rank {rank} of 4 in group {name}." for rank, (_, name) in RANKS.items()
    }


def test_each_attempt_of_a_job_has_its_groups(client: Client) -> None:
    script = f"{SAYS}; exit 3"
    job = client.submit(of_two_kinds("again", script, retry=Retry(limit=1, backoff_seconds=0.1)))
    with client.reconciling(job.ref):
        state = job.wait(PATIENCE)
    assert (state.phase, state.attempt) == (Phase.FAILED, 2)
    assert [worker.group for worker in state.workers] == ["", "", "wide"]
    assert {rank.rank: rank.worker for rank in state.ranks} == {
        rank: worker for rank, (worker, _) in RANKS.items()
    }


def test_what_a_job_needs_is_the_sum_of_its_groups(client: Client) -> None:
    plan = client.plan(of_two_kinds("sum"))
    each = [parse(part.job.resources.memory) * part.job.workers for part in plan.job.parts]
    launcher = plan.needs.memory_bytes - sum(each)
    assert launcher in (0, plan.job.launcher.memory_bytes), "on Slurm the launcher shares the first node"


@pytest.mark.req("FR-RES-002")
def test_a_job_whose_group_is_too_large_is_refused_with_the_group(client: Client) -> None:
    huge = WorkerGroup(name="huge", workers=6, resources=place.share(1))
    with pytest.raises(QuotaExceeded) as caught:
        client.submit(a_job("huge", workers=7, groups=(huge,)))
    hint = caught.value.hint
    assert "no group" in hint or "huge" in hint or "the groups" in hint


def test_groups_of_workers_that_come_and_go_are_refused(client: Client) -> None:
    with pytest.raises(InvalidJob) as caught:
        client.submit(of_two_kinds("flux", elastic=Elastic(max_workers=4)))
    assert "BAD_GROUPS" in {finding.code for finding in caught.value.findings}
