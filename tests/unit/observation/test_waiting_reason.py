"""What pods that do not start wait for, and what no condition of a job tells."""

from __future__ import annotations

import pytest
from tests.unit.cluster_objects import (
    BEGIN,
    Cluster,
    at_work,
    condition,
    derive,
    ended,
    running,
    stamp,
    standing,
    unscheduled,
    waiting,
)
from tests.unit.cluster_support import a_job

from mpijob.model import Phase, Resources
from mpijob.observation.state.phase import Reason

# -- what pods wait for -----------------------------------------------------------------------
NOT_FOUND = (
    'Back-off pulling image "example/mpi:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull and '
    'unpack image "example/mpi:1": failed to resolve reference "example/mpi:1": example/mpi:1: not found'
)
PULLING = [
    ("ErrImagePull", NOT_FOUND, Reason.IMAGE_NOT_FOUND, "Image example/mpi:1 does not exist in its registry"),
    (
        "ImagePullBackOff",
        NOT_FOUND,
        Reason.IMAGE_NOT_FOUND,
        "Image example/mpi:1 does not exist in its registry",
    ),
    ("ErrImagePull", "pull access denied, authorization failed", Reason.IMAGE_REFUSED, "may not be pulled"),
    ("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout", Reason.IMAGE_FAILED, "10.0.0.1:443: i/o timeout"),
    (
        "InvalidImageName",
        "invalid reference format",
        Reason.IMAGE_NAME,
        "'example/mpi:1' is not the name of an image",
    ),
    ("ErrImageNeverPull", "not present", Reason.IMAGE_NOT_FOUND, "is not on the node, and may not be pulled"),
    (
        "CreateContainerConfigError",
        'secret "tracking" not found',
        Reason.SETTINGS_MISSING,
        "The secret tracking does not exist",
    ),
    (
        "CreateContainerConfigError",
        "couldn't find key token in Secret team-cv/tracking",
        Reason.SETTINGS_MISSING,
        "The secret tracking has no key token",
    ),
    (
        "CreateContainerConfigError",
        "container has runAsNonRoot and image will run as root",
        Reason.START_REFUSED,
        "root",
    ),
    ("CreateContainerError", "no such device", Reason.START_REFUSED, "cannot be started: no such device"),
]


@pytest.mark.req("A-edge-image", "US1-3")
@pytest.mark.parametrize(("reason", "message", "expected", "text"), PULLING)
def test_trap_an_image_or_setting_that_is_not_there_gives_no_condition_at_all(
    reason: str, message: str, expected: Reason, text: str
) -> None:
    state = derive(Cluster().workers(waiting(reason, message)), "")
    assert standing(state) == (Phase.PENDING, expected)
    assert text in state.waiting_for
    assert "all 2 workers, for 1 min" in state.waiting_for
    assert state.findings[0].fixes
    assert state.workers[0].reason == expected


def test_an_older_kubelet_tells_why_it_backs_off_by_an_event_only() -> None:
    cluster = Cluster().workers(waiting("ImagePullBackOff", 'Back-off pulling image "example/mpi:1"'))
    said = 'Failed to pull image "example/mpi:1": rpc error: code = Unknown desc = manifest unknown'
    cluster.told("Pod", cluster.name_of("worker", 0), "Failed", said)
    assert derive(cluster, "").reason == Reason.IMAGE_NOT_FOUND


def test_an_image_that_is_being_pulled_is_named_with_since_when() -> None:
    cluster = Cluster().workers(waiting("PodInitializing"))
    for index in (0, 1):
        name = cluster.name_of("worker", index)
        cluster.told("Pod", name, "Pulling", 'Pulling image "example/mpi:1"', 58, warning=False)
    state = derive(cluster, "")
    assert state.waiting_for == "Pulling image example/mpi:1 (all 2 workers, for 40 s)"
    assert state.findings == ()


def test_a_volume_that_cannot_be_mounted_is_told_by_events_only() -> None:
    cluster = Cluster().worker(0, running(10)).worker(1, waiting("ContainerCreating"))
    said = 'MountVolume.SetUp failed for volume "volume-2" : configmap "settings" not found'
    state = derive(cluster.told("Pod", cluster.name_of("worker", 1), "FailedMount", said), "")
    assert state.waiting_for == "The config map settings does not exist (worker 1, for 1 min)"
    assert state.reason == Reason.SETTINGS_MISSING


@pytest.mark.parametrize("late", [False, True])
def test_a_mount_that_waits_for_the_kubelets_cache_is_no_cause(late: bool) -> None:
    cluster = Cluster() if late else Cluster().worker(0, waiting("ContainerCreating"))
    said = (
        'MountVolume.SetUp failed for volume "mpi-ssh-auth" : failed to sync secret cache: '
        "timed out waiting for the condition"
    )
    cluster.told("Pod", cluster.name_of("worker", 0), "FailedMount", said)
    if late:  # its pods are gone, and only events tell what they waited for
        cluster.condition("Failed", reason="DeadlineExceeded", at=60)
    state = derive(cluster, "")
    assert "mounted" not in f"{state.message} {state.waiting_for} {state.findings}"


@pytest.mark.req("B-edge-pending", "FR-RES-005")
def test_trap_a_pod_without_a_machine_gives_no_condition_at_all() -> None:
    said = (
        "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
        "2 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 3 Preemption is not helpful."
    )
    job = a_job(resources=Resources(cpu="1", memory="1Gi", gpu=8))
    state = derive(Cluster(job).worker(0, running(10)).worker(1, unscheduled(said)), "")
    assert standing(state) == (Phase.PENDING, Reason.UNSCHEDULABLE)
    assert state.waiting_for.startswith(
        "Insufficient GPUs: requested 8, 2 of 3 nodes have too little free; 1 of 3"
    )
    assert state.findings[0].code == "UNSCHEDULABLE"


def test_a_preparation_that_failed_fails_the_job_with_its_code() -> None:
    status = waiting("PodInitializing", at=5)
    done = {"exitCode": 2, "reason": "Error", "message": "tar: not found", "finishedAt": stamp(20)}
    status |= {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "mpijob-prepare", "state": {"terminated": done}}],
    }
    state = derive(Cluster().worker(0, status).worker(1, running(10)), "")
    assert standing(state) == (Phase.FAILED, Reason.WORKER_FAILED)
    assert state.workers[0].exit_code == 2


# -- deadlines, refusals ----------------------------------------------------------------------
def test_trap_a_deadline_deletes_the_jobset_and_all_pods() -> None:
    cluster = Cluster(a_job(deadline_seconds=15.0)).condition("Failed", reason="DeadlineExceeded", at=15)
    state = derive(cluster, "")
    assert (*standing(state), state.finished) == (Phase.FAILED, Reason.DEADLINE_EXCEEDED, BEGIN + 15)
    assert state.findings[0].code == "DEADLINE_EXCEEDED"


def test_a_deadline_is_not_the_cause_when_the_job_never_started() -> None:
    cluster = Cluster(a_job(deadline_seconds=15.0)).condition("Failed", reason="DeadlineExceeded", at=15)
    name = cluster.name_of("worker", 0)
    cluster.told("Pod", name, "Failed", f'Failed to pull image "example/mpi:1": {NOT_FOUND}', 5)
    state = derive(cluster.told("Pod", name, "Failed", "Error: ErrImagePull", 6), "")
    assert [one.code for one in state.findings] == ["IMAGE_NOT_FOUND", "DEADLINE_EXCEEDED"]
    assert state.reason == Reason.DEADLINE_EXCEEDED


def test_pods_that_a_deadline_ends_are_no_cause() -> None:
    leaving = {"deletionTimestamp": stamp(70), "deletionGracePeriodSeconds": 10}
    cluster = Cluster().worker(0, ended(143, 61), **leaving).worker(1, running(10), **leaving)
    cluster.launcher(ended(143, 61), **leaving).condition("Failed", reason="DeadlineExceeded", at=60)
    assert derive(cluster).reason == Reason.DEADLINE_EXCEEDED


def test_trap_an_engine_that_cannot_make_the_jobset_tells_it_by_an_event_only() -> None:
    said = 'TrainJob resources reconciliation failed: admission webhook "vjobset.kb.io" denied the request: too long'
    state = derive(Cluster().told("TrainJob", "bert", "TrainJobResourcesCreationFailed", said), "")
    assert standing(state) == (Phase.FAILED, Reason.REFUSED)
    assert state.findings[0].code == "ENGINE_REFUSED"
    assert "vjobset.kb.io" in state.message


def test_a_refusal_that_may_pass_leaves_the_job_pending() -> None:
    said = "TrainJob resources reconciliation failed: failed calling webhook: connection refused"
    state = derive(Cluster().told("TrainJob", "bert", "TrainJobResourcesCreationFailed", said), "")
    assert standing(state) == (Phase.PENDING, Reason.REFUSED)


def test_a_refusal_that_was_overcome_is_forgotten() -> None:
    said = "TrainJob resources reconciliation failed: failed calling webhook: connection refused"
    assert (
        derive(at_work().told("TrainJob", "bert", "TrainJobResourcesCreationFailed", said)).phase
        is Phase.RUNNING
    )


def test_an_event_of_an_earlier_job_of_that_name_does_not_count() -> None:
    cluster = Cluster().told("TrainJob", "bert", "TrainJobResourcesCreationFailed", "it is invalid")
    cluster.events[0]["involvedObject"]["uid"] = "another"
    assert derive(cluster, "").reason == Reason.MAKING


def test_trap_an_mpijob_that_the_operator_does_not_like_has_an_empty_status_for_ever() -> None:
    said = "Found validation errors: spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 0"
    state = derive(Cluster(operator=True).told("MPIJob", "bert", "ValidationError", said), "")
    assert (*standing(state), state.engine) == (Phase.FAILED, Reason.REFUSED, "mpi-operator")


CREATIONS = [
    ('Error creating: pods "x" is forbidden: exceeded quota: team, requested: cpu=2', Reason.QUOTA_USED_UP),
    (
        'Error creating: pods "x" is forbidden: violates PodSecurity "restricted:latest": …',
        Reason.POLICY_REFUSED,
    ),
]


@pytest.mark.parametrize(("said", "reason"), CREATIONS)
def test_pods_that_may_not_be_made_are_told_by_events_of_their_job_only(said: str, reason: Reason) -> None:
    state = derive(Cluster().worker(0, running(10)).told("Job", "bert-node-0", "FailedCreate", said), "")
    assert standing(state) == (Phase.PENDING, reason)
    assert state.findings


def test_mpijob_failures_keep_their_reasons() -> None:
    late = Cluster(operator=True).condition("Failed", reason="DeadlineExceeded", at=60)
    assert derive(late, "").reason == Reason.DEADLINE_EXCEEDED
    evicted = Cluster(operator=True).workers(running(10)).launcher(running(12))
    evicted.worker(
        1, {"phase": "Failed", "reason": "Evicted", "conditions": [condition("Ready", False, at=50)]}
    )
    state = derive(
        evicted.condition("Failed", reason="MPIJobEvicted", message="1/2 workers are evicted", at=51)
    )
    assert standing(state) == (Phase.FAILED, Reason.WORKER_EVICTED)
