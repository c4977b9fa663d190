"""What a job without a place lacks, in numbers, where the user may read what is free."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mpijob.backends.kubernetes.status import shortage
from mpijob.model import Amounts, Facts, JobRef, JobState, MPIJob, Phase, Resources, WorkerState

GIB = 1 << 30
JOB = MPIJob(name="j", workers=4, resources=Resources(cpu="1", memory="1Gi", gpu=2), command=("true",))


def waiting(placed: int) -> JobState:
    workers = tuple(
        WorkerState(index=index, name="", phase=Phase.PENDING, node="n" if index < placed else "")
        for index in range(4)
    )
    message = "Insufficient GPUs: requested 2 (worker 3, for 20 s)"
    return JobState(
        ref=JobRef("cv", "j", "u"),
        phase=Phase.PENDING,
        reason="Unschedulable",
        message=message,
        waiting_for=message,
        workers=workers,
    )


def a_place(**fields: Any) -> Facts:
    return Facts(place="cluster", capacity=Amounts(64, 64 * GIB, 8), free=Amounts(64, 64 * GIB, 2), **fields)


@pytest.mark.req("B-edge-pending", "B-story1-wait")
@pytest.mark.parametrize(("placed", "there"), [(0, 2), (2, 6)])
def test_what_the_jobs_own_workers_hold_is_not_short(placed: int, there: int) -> None:
    state = shortage.with_numbers(waiting(placed), JOB, a_place())
    assert state.message == f"Insufficient GPUs: requested 8, available {there} (worker 3, for 20 s)"
    assert state.waiting_for == f"Waiting for resources. {there}/8 GPUs available."


def test_without_numbers_the_scheduler_has_the_word() -> None:
    state = waiting(0)
    assert shortage.with_numbers(state, JOB, a_place(room_known=False)) == state
    enough = msgspec.structs.replace(a_place(), free=Amounts(64, 64 * GIB, 8))
    assert shortage.with_numbers(state, JOB, enough) == state
    assert shortage.is_short(state)


@pytest.mark.security
def test_what_is_free_in_one_namespace_is_not_told_to_a_job_of_another_with_the_same_uid() -> None:
    free = {"cv": Amounts(64, 64 * GIB, 2), "nlp": Amounts(64, 64 * GIB, 6)}
    counter = shortage.Counter(lambda job: msgspec.structs.replace(a_place(), free=free[job.namespace]))
    told = []
    for namespace in free:
        state = msgspec.structs.replace(waiting(0), ref=JobRef(namespace, "j", "u"))
        job = JOB.replace(namespace=namespace)
        told.append(counter.with_numbers(state, lambda job=job: job).waiting_for)  # type: ignore[misc]  # bound at once
    assert told == [f"Waiting for resources. {there}/8 GPUs available." for there in (2, 6)]
