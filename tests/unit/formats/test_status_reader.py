"""Kubernetes objects, read into what was seen: other people's jobs, odd objects, the scheduler's sentences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cluster_objects import BEGIN, NOW, Cluster, condition, ended, running, stamp
from tests.unit.cluster_support import a_job, a_rich_job

from mpijob.backends.kubernetes.status import derive_state
from mpijob.backends.kubernetes.status.derive_state import Objects
from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.formats.status import launcher_census, legacy_jobs
from mpijob.model import Family, JobState, Phase, Program
from mpijob.model.platform.cluster_observation import MAX_WORKERS
from mpijob.observation.state.phase import Reason

KUBEFLOW = "training.kubeflow.org/"


# -- what a job says of itself --------------------------------------------------------------------
def test_a_job_of_ours_shows_what_its_documents_say() -> None:
    cluster = Cluster(a_rich_job(), Shape(uid="u-7", attempt=2))
    state = derive_state.derive(cluster.seen(), now=NOW)
    assert (state.ref.namespace, state.ref.name, state.ref.uid) == ("team-cv", "bert", "u-7")
    assert (state.description, state.owner, state.labels) == (
        "Nightly training",
        "jane@example.org",
        {"team": "cv"},
    )
    assert (state.image, state.queue, state.attempt, state.world) == ("example/mpi:1", "gpu-large", 2, 8)


def test_the_world_is_the_jobs_own_also_where_it_is_not_workers_times_slots() -> None:
    assert derive_state.summary(Cluster(a_job(ranks=3)).job).world == 3
    programs = (Program(ranks=1, command=("a",)), Program(ranks=2, command=("b",)))
    assert derive_state.summary(Cluster(a_job(command=(), programs=programs)).job).world == 3


@pytest.mark.parametrize("operator", [False, True])
def test_an_object_that_asks_for_any_number_of_workers_is_listed_in_bounds(operator: bool) -> None:
    cluster, many = Cluster(operator=operator), 2**31 - 1
    if operator:
        cluster.job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = many
    else:
        cluster.job["spec"]["trainer"]["numNodes"] = many
    state = derive_state.derive(cluster.seen(), now=NOW)
    assert (state.workers_wanted, len(state.workers)) == (many, MAX_WORKERS)


def test_an_annotation_that_cannot_be_read_does_not_hide_the_job() -> None:
    cluster = Cluster(a_rich_job()).note("mpijob.dev/rest", '{"ranks": "many"')
    assert derive_state.summary(cluster.job).workers_wanted == 4


def test_the_tags_in_a_launchers_log_are_known_from_the_job_object_alone() -> None:
    assert derive_state.speech(Cluster().job) == (Family.OPENMPI, True)
    assert derive_state.speech(Cluster(operator=True).job) == (Family.MPICH, True)
    own = a_job(command=("mpirun", "-np", "4", "--hostfile", "/etc/mpi/hostfile", "python", "train.py"))
    assert derive_state.speech(Cluster(own).job) == (Family.OPENMPI, False)
    assert derive_state.speech({"kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1"}) == (
        Family.OPENMPI,
        False,
    )


def test_a_workers_number_is_known_from_its_pod_alone() -> None:
    for cluster in (Cluster(), Cluster(operator=True)):
        cluster.worker(1, running())
        assert derive_state.worker_index(cluster.pods[cluster.name_of("worker", 1)]) == 1


# -- other people's jobs --------------------------------------------------------------------------
def sdk_trainjob(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "sdk", "namespace": "team-cv", "uid": "9", "creationTimestamp": stamp(0)},
        "spec": {
            "runtimeRef": {"kind": "ClusterTrainingRuntime", "name": "mpi-distributed"},
            "trainer": {"numNodes": 2, "image": "their/image:2", "command": ["mpirun", "python", "a.py"]},
        },
        "status": status,
    }


def runtime(policy: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "ClusterTrainingRuntime", "spec": {"mlPolicy": {"numNodes": 1} | policy}}


def jobset_pod(rjob: str, index: int, status: dict[str, Any], restart: str = "0") -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": rjob, "jobset.sigs.k8s.io/restart-attempt": restart}
    labels["batch.kubernetes.io/job-completion-index"] = str(index)
    metadata = {
        "name": f"sdk-{rjob}-0-{index}-abcde{restart}",
        "labels": labels,
        "creationTimestamp": stamp(4),
    }
    spec = {
        "nodeName": "node-1",
        "restartPolicy": "OnFailure",
        "containers": [{"name": "node", "image": "x"}],
    }
    return {"metadata": metadata, "spec": spec, "status": status}


MPI = {"mpi": {"numProcPerNode": 2, "mpiImplementation": "OpenMPI"}}


def look(job: dict[str, Any], **more: Any) -> JobState:
    return derive_state.derive(Objects(job=job, **more), now=NOW, launcher_log="")


@pytest.mark.req("R2", "FR-018")
def test_a_job_made_with_the_kubeflow_sdk_runs_when_its_launcher_does() -> None:
    pods = [jobset_pod("node", index, running(10)) for index in (0, 1)]
    state = look(sdk_trainjob(), runtime=runtime(MPI), pods=[*pods, jobset_pod("launcher", 0, running(12))])
    assert (state.kind, state.engine, state.mpi, state.image) == (
        "TrainJob",
        "trainer",
        "openmpi",
        "their/image:2",
    )
    assert (state.phase, state.workers_wanted, state.world, state.aggregate) == (
        Phase.RUNNING,
        2,
        4,
        "2/2 Running",
    )


def test_a_foreign_launcher_that_fails_may_be_tried_again_and_is_not_over() -> None:
    pods = [
        *(jobset_pod("node", index, running(10)) for index in (0, 1)),
        jobset_pod("launcher", 0, ended(1, 40)),
    ]
    state = look(sdk_trainjob(), runtime=runtime(MPI), pods=pods)
    assert (state.phase, state.reason) == (Phase.RUNNING, Reason.RETRYING)
    failed = sdk_trainjob(conditions=[condition("Failed", reason="ReachedMaxRestarts", at=50)])
    assert look(failed, runtime=runtime(MPI), pods=pods).phase is Phase.FAILED


def test_a_foreign_worker_that_is_started_again_and_again_is_told() -> None:
    status = running(10, restarts=2)
    crashed = {"exitCode": 7, "reason": "Error", "startedAt": stamp(10), "finishedAt": stamp(20)}
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s restarting failed container"}}
    status["containerStatuses"][0] |= {"ready": False, "state": waits, "lastState": {"terminated": crashed}}
    pods = [jobset_pod("node", 0, running(10)), jobset_pod("node", 1, status)]
    state = look(sdk_trainjob(), runtime=runtime({"torch": {}}), pods=pods)
    assert (state.phase, state.reason) == (Phase.RUNNING, Reason.RETRYING)
    assert state.message == "Exited with 7, and is being restarted (worker 1)"
    assert (state.workers[1].restarts, state.workers[1].message) == (
        2,
        "Exited with 7, and is being restarted",
    )


def test_a_foreign_worker_that_ended_well_is_not_waited_for() -> None:
    pods = [jobset_pod("node", 0, running(10)), jobset_pod("node", 1, ended(0, 20) | {"phase": "Running"})]
    state = look(sdk_trainjob(), runtime=runtime({"torch": {}}), pods=pods)
    assert (state.phase, state.workers[1].phase) == (Phase.RUNNING, Phase.SUCCEEDED)


def test_a_foreign_job_that_its_engine_calls_complete_succeeded() -> None:
    done = sdk_trainjob(conditions=[condition("Complete", reason="AllJobsCompleted", at=50)])
    state = look(done, runtime=runtime(MPI))
    assert (state.phase, state.finished) == (Phase.SUCCEEDED, BEGIN + 50)


def test_a_launcher_that_also_works_is_worker_0() -> None:
    policy = {"mpi": {"numProcPerNode": 1, "runLauncherAsNode": True}}
    pods = [jobset_pod("node", 0, running(10)), jobset_pod("launcher", 0, running(12))]
    state = look(sdk_trainjob(), runtime=runtime(policy), pods=pods)
    assert (state.phase, state.workers_wanted, [one.index for one in state.workers]) == (
        Phase.RUNNING,
        2,
        [0, 1],
    )


def test_a_training_without_mpi_has_workers_and_no_launcher() -> None:
    pods = [jobset_pod("node", index, running(10)) for index in (0, 1)]
    helper = jobset_pod("dataset-initializer", 0, ended(0, 8))
    state = look(sdk_trainjob(), runtime=runtime({"torch": {}}), pods=[helper, *pods])
    assert (state.phase, state.mpi, state.aggregate) == (Phase.RUNNING, "", "2/2 Running")


def test_only_the_pods_of_the_last_restart_count() -> None:
    old = [jobset_pod("node", index, ended(1, 8), "0") for index in (0, 1)]
    new = [jobset_pod("node", index, running(30), "1") for index in (0, 1)]
    state = look(sdk_trainjob(), runtime=runtime({"torch": {}}), pods=[*old, *new])
    assert (state.phase, {one.phase for one in state.workers}) == (Phase.RUNNING, {Phase.RUNNING})


def v1(kind: str, prefix: str, *roles: str, **status: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "their/image:2"}]}}
    specs = {role: {"replicas": 1 + (role == "Worker"), "template": template} for role in roles}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": kind, "status": status,
        "metadata": {"name": "old", "namespace": "team-cv", "uid": "8", "creationTimestamp": stamp(0)},
        "spec": {f"{prefix}ReplicaSpecs": specs, "runPolicy": {}},
    }  # fmt: skip


OLDER = [
    ("PyTorchJob", "pytorch", ("Master", "Worker"), 3),
    ("TFJob", "tf", ("Chief", "PS", "Worker"), 4),
    ("XGBoostJob", "xgb", ("Master", "Worker"), 3),
    ("PaddleJob", "paddle", ("Master", "Worker"), 3),
    ("JAXJob", "jax", ("Worker",), 2),
]


@pytest.mark.req("FR-018")
@pytest.mark.parametrize(("kind", "prefix", "roles", "workers"), OLDER)
def test_jobs_of_the_training_operator_are_first_class(
    kind: str, prefix: str, roles: tuple[str, ...], workers: int
) -> None:
    started = v1(kind, prefix, *roles, conditions=[condition("Created"), condition("Running")])
    state = derive_state.summary(started)
    assert (state.kind, state.engine, state.mpi) == (kind, "training-operator", "")
    assert (state.phase, state.workers_wanted, state.image) == (Phase.RUNNING, workers, "their/image:2")


@pytest.mark.req("FR-018", "R2")
@pytest.mark.parametrize(("kind", "prefix", "roles", "workers"), OLDER)
def test_what_a_job_of_the_training_operator_asks_for_is_told_in_our_words(
    kind: str, prefix: str, roles: tuple[str, ...], workers: int
) -> None:
    document = v1(kind, prefix, *roles)
    main = document["spec"][f"{prefix}ReplicaSpecs"][roles[0]]["template"]["spec"]["containers"][0]
    main |= {"command": ["python"], "args": ["train.py"], "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    asked = legacy_jobs.read(document)
    told = (asked.name, asked.namespace, asked.workers, asked.image, asked.command, asked.resources.gpu)
    assert told == ("old", "team-cv", workers, "their/image:2", ("python", "train.py"), 2)


def test_a_job_of_the_training_operator_without_parts_is_told_as_that() -> None:
    with pytest.raises(InvalidJob, match="this PyTorchJob has no replica specs"):
        legacy_jobs.read({"kind": "PyTorchJob", "metadata": {"name": "x"}, "spec": {}})


CONDITIONS = [
    (["Created"], Phase.PENDING),
    (["Created", "Running", "Succeeded"], Phase.SUCCEEDED),
    (["Created", "Running", "Failed"], Phase.FAILED),
]


@pytest.mark.parametrize(("names", "phase"), CONDITIONS)
def test_the_phase_of_an_older_kind_follows_its_conditions(names: list[str], phase: Phase) -> None:
    job = v1(
        "PyTorchJob", "pytorch", "Master", "Worker", conditions=[condition(name, at=50) for name in names]
    )
    assert derive_state.summary(job).phase is phase


def test_an_older_kind_that_is_suspended_rests() -> None:
    job = v1("PyTorchJob", "pytorch", "Master", conditions=[condition("Suspended", True)])
    job["spec"]["runPolicy"]["suspend"] = True
    assert derive_state.summary(job).phase is Phase.SUSPENDED


def test_master_and_workers_of_an_older_kind_have_numbers_of_their_own() -> None:
    pods = []
    for role, index in (("worker", 0), ("worker", 1), ("master", 0)):
        labels = {f"{KUBEFLOW}replica-type": role, f"{KUBEFLOW}replica-index": str(index)}
        metadata = {"name": f"old-{role}-{index}", "labels": labels}
        spec = {"nodeName": "n", "containers": [{"name": "node"}]}
        pods.append({"metadata": metadata, "spec": spec, "status": running(10)})
    state = look(v1("PyTorchJob", "pytorch", "Master", "Worker"), pods=pods)
    assert [(one.index, one.name) for one in state.workers] == [
        (0, "old-master-0"),
        (1, "old-worker-0"),
        (2, "old-worker-1"),
    ]
    assert state.phase is Phase.RUNNING


def test_an_mpijob_of_version_1_has_a_launcher() -> None:
    state = derive_state.summary(v1("MPIJob", "mpi", "Launcher", "Worker", conditions=[condition("Running")]))
    assert (state.kind, state.engine, state.workers_wanted, state.phase) == (
        "MPIJob",
        "training-operator",
        2,
        Phase.RUNNING,
    )


# -- odd objects ----------------------------------------------------------------------------------
WORDS = (
    *("status", "spec", "conditions", "type", "state", "metadata"),
    *("labels", "containers", "containerStatuses", "reason"),
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.thorough
@pytest.mark.security
@given(status=ANY, workload=ANY, event=ANY)
def test_no_object_however_odd_stops_the_reading(status: Any, workload: Any, event: Any) -> None:
    cluster = Cluster()
    cluster.job["status"] = status
    cluster.workers(running(10))
    for pod in cluster.pods.values():
        pod["status"] = status
    events = [event if isinstance(event, dict) else {}]
    seen = cluster.seen(workload=workload if isinstance(workload, dict) else None, events=events)
    assert isinstance(derive_state.derive(seen, now=NOW), JobState)


@pytest.mark.thorough
@pytest.mark.security
@given(st.text())
def test_no_log_however_odd_stops_the_census(log: str) -> None:
    layout = launcher_census.Layout({}, 4)
    assert launcher_census.read(log, Family.OPENMPI, layout).read
