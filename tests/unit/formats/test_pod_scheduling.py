"""The scheduler's sentences made readable, and events of old and new recorders put in order."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cluster_objects import NOW, Cluster, running, unscheduled
from tests.unit.cluster_support import a_job

from mpijob.backends.kubernetes.status import derive_state
from mpijob.backends.kubernetes.status.derive_state import Objects
from mpijob.formats.status import pod_scheduling
from mpijob.formats.status.events import Events
from mpijob.model import JobState, Resources
from mpijob.model.platform.cluster_observation import StartupProblem
from mpijob.observation.state.phase import Reason


def look(job: dict[str, Any], **more: Any) -> JobState:
    return derive_state.derive(Objects(job=job, **more), now=NOW, launcher_log="")


# -- the scheduler's sentence ---------------------------------------------------------------------
SENTENCES = [
    (
        "0/1 nodes are available: 1 Insufficient cpu.",
        "Insufficient CPU cores: requested 2, no node of 1 has as much free",
    ),
    (
        "0/2 nodes are available: 2 Insufficient memory. preemption: 0/2 nodes are available: 2 No preemption victims.",
        "Insufficient memory: requested 4 GiB, no node of 2 has as much free",
    ),
    (
        "0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) didn't match Pod's node affinity/selector.",
        "No node fits: 1 of 4 nodes take no new pods (cordoned); 3 of 4 nodes do not match the job's node selector",
    ),
    ("0/1 nodes are available: 1 Too many pods.", "No node fits: 1 of 1 node have reached their pod limit"),
    (
        "0/3 nodes are available: 3 node(s) had a rare trouble.",
        "No node fits: 3 of 3 nodes: had a rare trouble",
    ),
    ("no nodes available to schedule pods", "no nodes available to schedule pods"),
    ("0/0 nodes are available: .", "The cluster has no nodes"),
    ("pod group is not ready, 2 Pending", "pod group is not ready, 2 Pending"),
]


@pytest.mark.parametrize(("said", "text"), SENTENCES)
def test_the_schedulers_sentence_is_made_readable(said: str, text: str) -> None:
    assert pod_scheduling.readable(said, {"cpu": "2", "memory": "4Gi"}) == text


def test_claims_that_are_missing_or_not_bound_are_a_matter_of_volumes() -> None:
    missing = pod_scheduling.obstacle('persistentvolumeclaim "data" not found', {}, None)
    assert (missing.hurdle, missing.text, missing.lasting) == (
        StartupProblem.VOLUME, "The volume claim data does not exist", True,
    )  # fmt: skip
    unbound = pod_scheduling.obstacle("0/1 nodes: pod has unbound immediate PersistentVolumeClaims", {}, None)
    assert (unbound.hurdle, unbound.lasting) == (StartupProblem.VOLUME, False)


def test_many_workers_that_wait_for_the_same_are_said_once() -> None:
    job = a_job(workers=8, resources=Resources(cpu="1", memory="1Gi", gpu=8))
    cluster = Cluster(job)
    for index in range(8):
        cluster.worker(
            index,
            running(10)
            if index < 2
            else unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
        )
    state = look(cluster.job, runtime=cluster.runtime, pods=[*cluster.pods.values()])
    assert state.waiting_for == (
        "Insufficient GPUs: requested 8, no node of 1 has as much free (6 of 8 workers, for 1 min)"
    )


def test_a_pod_that_is_gated_waits_for_its_queue() -> None:
    cluster = Cluster().workers(unscheduled("Scheduling is blocked", "SchedulingGated"))
    assert look(cluster.job, pods=[*cluster.pods.values()]).reason == Reason.WAITING


# -- events ---------------------------------------------------------------------------------------
def test_events_of_old_and_new_recorders_are_put_in_order() -> None:
    about = {"involvedObject": {"kind": "Pod", "name": "a"}}
    new = about | {"reason": "New", "eventTime": "2026-11-15T07:00:00.250000Z", "lastTimestamp": None}
    old = about | {"reason": "Old", "lastTimestamp": "2026-11-15T06:59:59Z"}
    again = about | {
        "reason": "Again",
        "eventTime": "2026-11-15T06:00:00Z",
        "series": {"lastObservedTime": "2026-11-15T08:00:00Z"},
    }
    assert [one.reason for one in Events([again, new, old]).of("Pod", "a")] == ["Old", "New", "Again"]
