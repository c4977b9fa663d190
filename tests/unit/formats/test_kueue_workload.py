"""A job in a queue: what Kueue's own messages mean, and where the job then stands."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.cluster_objects import BEGIN, NOW, Cluster, condition, ended, running, stamp
from tests.unit.cluster_support import a_job

from mpijob.backends.kubernetes.status import derive_state
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.status import kueue_workload
from mpijob.model import JobState, Phase, Resources
from mpijob.model.platform.cluster_observation import WaitKind
from mpijob.observation.state.phase import Reason

GPUS = a_job(workers=4, queue="main", resources=Resources(cpu="1", memory="1Gi", gpu=8))
WAITS = (
    "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor default, "
    "4 more needed"
)
NEVER = (
    "couldn't assign flavors to pod set node: insufficient quota for nvidia.com/gpu in flavor default, previously "
    "considered podsets requests (0) + current podset request (32) > maximum capacity (24)"
)


def a_workload(*conditions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    pods = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "8", "cpu": "1"}}}]}
    sets = [{"name": "node", "count": 4, "template": {"spec": pods}}, {"name": "launcher", "count": 1}]
    return {
        "metadata": {"name": "trainjob-bert-1f2a3", "creationTimestamp": stamp(1)},
        "spec": {"queueName": "main", "priority": 7, "podSets": sets} | spec,
        "status": {"conditions": list(conditions)},
    }


def pending(message: str, reason: str = "Pending") -> dict[str, Any]:
    return condition("QuotaReserved", False, reason, message, 2)


def queued(
    workload: dict[str, Any] | None, *, position: int | None = None, cluster: Cluster | None = None
) -> JobState:
    cluster = cluster or Cluster(GPUS)
    cluster.job["spec"]["suspend"] = True
    cluster.condition("Suspended", True, "Suspended", "TrainJob is suspended", 1)
    seen = cluster.seen(workload=workload, position=position)
    return derive_state.derive(seen, now=NOW, launcher_log="")


@pytest.mark.req("FR-RES-005", "FR-028")
def test_a_queued_job_says_what_it_waits_for_and_its_place() -> None:
    state = queued(a_workload(pending(WAITS)), position=2)
    assert (state.phase, state.reason, state.waiting_for) == (
        Phase.QUEUED, Reason.WAITING, "Waiting for 4 GPUs in queue main",
    )  # fmt: skip
    assert (state.queue_position, state.queue, state.priority, state.queued) == (3, "main", 7, BEGIN + 1)
    assert (state.started, state.findings, state.workers) == (None, (), ())


@pytest.mark.req("B-edge-pending")
def test_a_job_that_can_never_run_says_what_it_asked_for_and_what_there_is() -> None:
    state = queued(a_workload(pending(NEVER)))
    assert (state.phase, state.reason) == (Phase.QUEUED, Reason.QUOTA_TOO_SMALL)
    assert state.waiting_for == "Insufficient GPUs: requested 32, available 24"
    assert state.findings[0].code == "QUOTA_TOO_SMALL"
    assert Reason.QUOTA_TOO_SMALL in derive_state.LASTING


def test_a_job_of_which_one_part_can_never_run_does_not_wait_for_another() -> None:
    launcher = WAITS.replace("pod set node", "pod set launcher")
    state = queued(a_workload(pending(f"{launcher}, {NEVER}")))
    assert (state.phase, state.reason) == (Phase.QUEUED, Reason.QUOTA_TOO_SMALL)
    other = NEVER.replace("flavor default", "flavor spot")
    state = queued(a_workload(pending(f"{other}, {WAITS.partition(': ')[2]}")))
    assert state.reason == Reason.WAITING, "another flavor may hold it"


MESSAGES = [
    (
        WAITS.replace("nvidia.com/gpu", "cpu").replace("4 more", "50m more"),
        WaitKind.WAITING,
        "0.05 CPU cores in queue main",
    ),
    (
        WAITS.replace("nvidia.com/gpu", "memory").replace("4 more", "16Gi more"),
        WaitKind.WAITING,
        "16 GiB of memory in queue",
    ),
    (WAITS.replace("4 more", "1 more"), WaitKind.WAITING, "Waiting for 1 GPU in queue main"),
    (
        f"{WAITS}, insufficient unused quota for nvidia.com/gpu in flavor spot, 2 more needed",
        WaitKind.WAITING,
        "2 GPUs in",
    ),
    (
        f"{WAITS}, {NEVER.partition(': ')[2].replace('default', 'spot')}",
        WaitKind.WAITING,
        "Waiting for 4 GPUs in queue",
    ),
    (
        f"{WAITS}, insufficient unused quota for cpu in flavor default, 2 more needed",
        WaitKind.WAITING,
        "4 GPUs and 2 CPU cores",
    ),
    (
        f"{WAITS}. Pending the preemption of 2 workload(s)",
        WaitKind.WAITING,
        "2 running jobs will be preempted for it",
    ),
    (
        "Workload no longer fits after processing another workload",
        WaitKind.WAITING,
        "Waiting for its turn in queue main",
    ),
    ("", WaitKind.WAITING, "Waiting for its turn in queue main"),
    ("LocalQueue main doesn't exist", WaitKind.MISSING, "The queue main does not exist"),
    ("LocalQueue main is inactive", WaitKind.CLOSED, "The queue main is inactive and admits nothing"),
    (
        "ClusterQueue gpus doesn't exist",
        WaitKind.MISSING,
        "The cluster queue gpus behind queue main does not exist",
    ),
    (
        "ClusterQueue gpus is inactive",
        WaitKind.CLOSED,
        "The cluster queue gpus behind queue main is inactive",
    ),
    (
        "couldn't assign flavors to pod set node: resource nvidia.com/gpu unavailable in ClusterQueue",
        WaitKind.TOO_LARGE,
        "no GPUs",
    ),
    (
        "workload namespace doesn't match ClusterQueue selector",
        WaitKind.MISSING,
        "does not serve this namespace",
    ),
]


@pytest.mark.parametrize(("message", "hold", "text"), MESSAGES)
def test_kueues_messages_are_understood(message: str, hold: WaitKind, text: str) -> None:
    place = kueue_workload.read(a_workload(pending(message)), "main", None)
    assert place is not None
    assert place.hold is hold
    assert text in place.text


def test_the_largest_amount_counts_all_pod_sets_not_only_those_before_the_one_that_did_not_fit() -> None:
    short = NEVER.replace("(32)", "(8)")
    assert queued(a_workload(pending(short))).waiting_for == "Insufficient GPUs: requested 32, available 24"


def test_trap_a_trainjob_that_a_queue_suspended_is_queued_and_not_suspended() -> None:
    assert queued(None).phase is Phase.QUEUED
    assert queued(None).waiting_for == "Waiting for queue main to process the job"


def test_a_job_that_its_user_suspended_rests_although_it_has_a_queue() -> None:
    cluster = Cluster(GPUS).note(well_known.SUSPENDED_ANNOTATION, stamp(50))
    assert queued(a_workload(pending("")), cluster=cluster).phase is Phase.SUSPENDED


def test_a_workload_that_somebody_deactivated_rests_and_says_so() -> None:
    evicted = condition("Evicted", True, "Deactivated", "The workload is deactivated", 20)
    state = queued(a_workload(pending(""), evicted, active=False))
    assert (state.phase, state.reason) == (Phase.SUSPENDED, Reason.DEACTIVATED)


def test_a_queue_label_without_kueue_does_not_hold_a_job_back() -> None:
    cluster = Cluster(GPUS).workers(running(10))
    state = derive_state.derive(cluster.seen(), now=NOW, launcher_log="")
    assert state.phase is Phase.INITIALIZING


def test_reserved_quota_waits_for_admission_checks() -> None:
    workload = a_workload(condition("QuotaReserved", True))
    workload["status"]["admissionChecks"] = [
        {"name": "budget", "state": "Pending", "message": "asked finance"}
    ]
    assert queued(workload).waiting_for == "Quota is reserved, waiting for budget: asked finance"


def test_an_admitted_job_starts() -> None:
    workload = a_workload(condition("Admitted", True, at=90))
    state = queued(workload)
    assert (state.phase, state.reason) == (Phase.PENDING, Reason.MAKING)
    cluster = Cluster(GPUS).workers(running(10))
    assert (
        derive_state.derive(cluster.seen(workload=workload), now=NOW, launcher_log="").phase
        is Phase.INITIALIZING
    )


def test_trap_versions_that_do_not_fit_leave_an_admitted_job_suspended_for_ever() -> None:
    state = queued(a_workload(condition("Admitted", True, at=20)))
    assert (state.phase, state.reason) == (Phase.PENDING, Reason.NOT_RESUMED)
    assert "it is still suspended (for 1 min)" in state.waiting_for
    assert state.findings[0].code == "NOT_RESUMED"


def clock(second: float) -> str:
    return time.strftime("%H:%M", time.gmtime(BEGIN + second))


PREEMPTION = (
    "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue; "
    "preemptor path: /a; preemptee path: /a"
)


@pytest.mark.req("UC3-AF1")
def test_a_preempted_job_is_queued_again_and_says_why() -> None:
    evicted = condition("Evicted", True, "Preempted", PREEMPTION, 40)
    preempted = condition("Preempted", True, "InClusterQueue", PREEMPTION, 40)
    leaving = {"deletionTimestamp": stamp(55), "deletionGracePeriodSeconds": 10}
    cluster = Cluster(GPUS).worker(0, running(10), **leaving)
    state = queued(a_workload(pending(WAITS), evicted, preempted), cluster=cluster)
    assert (state.phase, state.reason) == (Phase.QUEUED, Reason.PREEMPTED)
    assert state.waiting_for == (
        f"Pre-empted at {clock(40)} UTC by another job (prioritization in the ClusterQueue); will resume when 4 GPUs "
        "are free in queue main; its pods are still ending"
    )
    assert state.findings[0].code == "PREEMPTED"


@pytest.mark.req("UC3-AF1")
def test_how_the_pods_of_a_preempted_job_end_is_no_cause() -> None:
    evicted = condition("Evicted", True, "Preempted", PREEMPTION, 40)
    leaving = {"deletionTimestamp": stamp(55), "deletionGracePeriodSeconds": 10}
    cluster = Cluster(GPUS).launcher(running(12), **leaving)  # the workers are gone already
    cluster.worker(1, ended(143, 56), **leaving)
    state = queued(a_workload(pending(WAITS), evicted), cluster=cluster)
    assert (state.phase, state.reason) == (Phase.QUEUED, Reason.PREEMPTED)
    assert [one.code for one in state.findings] == ["PREEMPTED"]


@pytest.mark.req("UC3-AF1", "FR-028")
def test_a_preempted_job_names_who_took_its_place_where_that_may_be_seen() -> None:
    evicted = condition("Evicted", True, "Preempted", PREEMPTION, 40)
    other = {
        "metadata": {"namespace": "team-b", "name": "trainjob-big-1f2a3"},
        "spec": {"priorityClassRef": {"name": "high"}, "priority": 100},
    }
    assert kueue_workload.taker(a_workload(evicted)) == "2"
    told = kueue_workload.read(a_workload(pending(WAITS), evicted), "main", None, other)
    assert told is not None
    assert told.text == (
        f"Pre-empted at {clock(40)} UTC by team-b/big (priority high) (prioritization in the ClusterQueue); "
        "will resume when 4 GPUs are free in queue main"
    )


@pytest.mark.req("UC3-AF1")
def test_a_preempted_job_names_its_epoch_where_its_lines_told_it() -> None:
    evicted = condition("Evicted", True, "Preempted", PREEMPTION, 40)
    told = kueue_workload.read(a_workload(pending(WAITS), evicted), "main", None, None, "epoch 45/100")
    assert told is not None
    assert told.text.startswith(f"Pre-empted at epoch 45/100 ({clock(40)} UTC) by another job")
    assert told.text.endswith("; will resume when 4 GPUs are free in queue main")


EVICTIONS = [
    ("PodsReadyTimeout", "its pods were not ready in time"),
    ("ClusterQueueStopped", "its queue was stopped"),
    ("SomethingNew", "a new reason"),
]


@pytest.mark.parametrize(("reason", "text"), EVICTIONS)
def test_an_evicted_job_is_queued_again_and_says_why(reason: str, text: str) -> None:
    state = queued(a_workload(pending(""), condition("Evicted", True, reason, "a new reason", 40)))
    assert (state.phase, state.reason) == (Phase.QUEUED, Reason.REQUEUED)
    assert text in state.waiting_for


def test_a_job_that_is_being_preempted_is_queued_again_although_it_is_still_admitted() -> None:
    said = (condition("Admitted", True, at=5), condition("QuotaReserved", True, at=5))
    state = queued(a_workload(*said, condition("Evicted", True, "Preempted", PREEMPTION, 40)))
    assert (state.phase, state.waiting_for) == (
        Phase.QUEUED,
        f"Pre-empted at {clock(40)} UTC by another job (prioritization in the ClusterQueue); "
        "resumes when capacity is free",
    )


def test_an_eviction_that_is_over_is_forgotten() -> None:
    workload = a_workload(condition("Admitted", True, at=70), condition("Evicted", False, "QuotaReserved"))
    cluster = Cluster(GPUS).workers(running(80))
    assert (
        derive_state.derive(cluster.seen(workload=workload), now=NOW, launcher_log="").phase
        is Phase.INITIALIZING
    )


def test_an_mpijob_waits_in_a_queue_as_well() -> None:
    cluster = Cluster(GPUS, operator=True)
    cluster.job["spec"]["runPolicy"]["suspend"] = True
    assert (
        derive_state.summary(cluster.job, a_workload(pending(WAITS))).waiting_for
        == "Waiting for 4 GPUs in queue main"
    )


def test_kueue_says_that_a_job_is_over_when_the_job_object_does_not() -> None:
    workload = a_workload(
        condition("Admitted", True, at=5), condition("Finished", True, "Succeeded", "done", 60)
    )
    assert derive_state.summary(Cluster(GPUS).job, workload).phase is Phase.SUCCEEDED
