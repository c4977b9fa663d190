"""What users do to a job on a cluster, as it is written onto the job's objects."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cluster_objects import Cluster, at_work, derive, ended, running, stamp, waiting
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.actions import exec_in_pod, patches
from mpijob.backends.kubernetes.client import exec_stream, resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.logs import pod_logs
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.status.job_objects import Found
from mpijob.formats.kubernetes.metadata import user_actions, well_known
from mpijob.model import JobRef

SERVED = frozenset({resources.TRAINER_API, resources.MPI_OPERATOR_API, resources.KUEUE_API})


def stored(cluster: Cluster, **objects: Any) -> tuple[Store, Found]:
    """Put a job and its pods into a store, and find it there."""
    api = Store()
    kind = resources.MPIJOB if cluster.operator else resources.TRAINJOB
    metadata = cluster.job["metadata"]
    api.objects[kind.path(metadata["namespace"], metadata["name"])] = cluster.job
    for name, pod in cluster.pods.items():
        api.objects[resources.POD.path(metadata["namespace"], name)] = pod
    for path, document in objects.items():
        api.objects[path] = document
    return api, job_objects.find(api, JobRef(metadata["namespace"], metadata["name"]), lambda: SERVED)


def reasons(api: Store, found: Found) -> list[str]:
    return [act.reason for act in user_actions.read(api.objects[found.path])]


@pytest.fixture
def launcher_hears(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Let commands inside the launcher end it, and keep what was asked of it."""
    heard: list[tuple[str, ...]] = []

    def capture(api: Store, path: str, argv: tuple[str, ...], *, container: str) -> tuple[int, bytes, bytes]:
        heard.append(argv)
        api.objects[path.removesuffix("/exec")]["status"] = ended(143, 60)
        return 0, b"", b""

    monkeypatch.setattr(exec_stream, "capture", capture)
    return heard


def test_a_job_that_runs_is_cancelled_through_its_launcher_whose_log_stays(
    launcher_hears: list[tuple[str, ...]],
) -> None:
    cluster = at_work()
    api, found = stored(cluster)
    patches.cancel(api, found, cluster.seen(), 7.0)
    assert launcher_hears[0][-1] == "7"
    assert reasons(api, found) == [user_actions.CANCELLED]
    assert well_known.CANCELLED_ANNOTATION in api.objects[found.path]["metadata"]["annotations"]
    assert len(api.names("pods")) == len(cluster.pods)


def resumed() -> Cluster:
    """A job whose pods of before it was resumed are still on their way out."""
    cluster, before = at_work(), {}
    for name, pod in cluster.pods.items():
        old = f"{name.rpartition('-')[0]}-aaaaa"
        going = {"name": old, "uid": f"uid-{old}", "deletionTimestamp": stamp(640)}
        before[old] = pod | {"metadata": pod["metadata"] | going}
        pod["metadata"]["creationTimestamp"] = stamp(50)
    cluster.pods = before | cluster.pods
    return cluster


def test_a_resumed_job_is_cancelled_through_its_new_launcher(launcher_hears: list[tuple[str, ...]]) -> None:
    cluster = resumed()
    api, found = stored(cluster)
    patches.cancel(api, found, cluster.seen(), 7.0)
    assert len(launcher_hears) == 1
    path = resources.POD.path(cluster.spec.namespace, cluster.name_of("launcher", 0))
    assert api.objects[path]["status"]["phase"] == "Failed"


@pytest.mark.parametrize("worker", [None, 1])
def test_a_command_is_run_in_the_new_pods_of_a_resumed_job(
    monkeypatch: pytest.MonkeyPatch, worker: int | None
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(exec_stream, "execute", lambda api, path, argv, container: asked.append(path))
    cluster = resumed()
    exec_in_pod.execute(Store(), derive(cluster), cluster.seen(), ("ls",), worker=worker, rank=None)
    name = cluster.name_of("launcher" if worker is None else "worker", worker or 0)
    assert asked == [resources.POD.path(cluster.spec.namespace, name, "exec")]


def test_the_workers_of_a_resumed_job_are_its_new_pods_in_whatever_order_they_are_listed() -> None:
    cluster = resumed()
    listed = cluster.seen().pods
    wanted = {0: cluster.name_of("worker", 0), 1: cluster.name_of("worker", 1)}
    for pods in (listed, listed[::-1]):
        assert {index: pod["metadata"]["name"] for index, pod in pod_logs.workers_of(pods).items()} == wanted


def test_a_launcher_that_cannot_be_asked_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise ApiError("no", status=403)

    monkeypatch.setattr(exec_stream, "capture", refused)
    monkeypatch.setattr(patches, "until", lambda happened, seconds=0.0: happened())
    cluster = at_work()
    api, found = stored(cluster)
    patches.cancel(api, found, cluster.seen(), 0.0)
    assert not any("launcher" in name for name in api.names("pods"))


def test_a_job_whose_workers_only_start_loses_its_pods() -> None:
    cluster = Cluster().workers(waiting("ErrImagePull"))
    api, found = stored(cluster)
    patches.cancel(api, found, cluster.seen(), 0.0)
    assert api.names("pods") == []


def test_a_job_without_pods_is_held_back_for_good() -> None:
    cluster = Cluster()
    api, found = stored(cluster)
    patches.cancel(api, found, cluster.seen(), 0.0)
    assert api.objects[found.path]["spec"]["suspend"] is True


@pytest.mark.parametrize("operator", [False, True])
def test_a_job_is_suspended_and_resumed(operator: bool) -> None:
    cluster = Cluster(operator=operator).workers(running())
    api, found = stored(cluster)
    patches.suspend(api, found, cluster.seen())
    spec = api.objects[found.path]["spec"]
    assert (spec["runPolicy"] if operator else spec)["suspend"] is True
    found = job_objects.find(api, found.ref, lambda: SERVED)
    patches.resume(api, found, cluster.seen())
    assert (spec["runPolicy"] if operator else spec)["suspend"] is False
    assert reasons(api, found) == [user_actions.SUSPENDED, user_actions.RESUMED]
    assert well_known.SUSPENDED_ANNOTATION not in api.objects[found.path]["metadata"]["annotations"]


WORKLOAD = {"metadata": {"name": "w", "namespace": "cv"}, "spec": {"active": True}}


def test_a_job_of_a_queue_rests_through_its_workload() -> None:
    cluster = Cluster().workers(running())
    path = resources.WORKLOAD.path("cv", "w")
    api, found = stored(cluster, **{path: {**WORKLOAD, "spec": {"active": True}}})
    patches.suspend(api, found, cluster.seen(workload=WORKLOAD))
    assert api.objects[path]["spec"]["active"] is False
    assert "suspend" not in api.objects[found.path]["spec"]


def test_a_waiting_job_leaves_its_queue_where_the_workload_may_not_be_touched() -> None:
    cluster = Cluster()
    cluster.job["metadata"]["labels"][well_known.QUEUE_LABEL] = "main"
    api, found = stored(cluster)

    def refused(method: str, path: str) -> None:
        now = api.objects[found.path]
        assert well_known.QUEUE_LABEL in now["metadata"]["labels"] or now["spec"].get("suspend")
        if method == "PATCH" and "/workloads/" in path:
            raise ApiError("no", status=403)

    api.before = refused
    patches.cancel(api, found, cluster.seen(workload=WORKLOAD), 0.0)
    job = api.objects[found.path]
    assert well_known.QUEUE_LABEL not in job["metadata"]["labels"]
    assert job["spec"]["suspend"] is True


def test_a_job_cancelled_before_kueue_knows_it_rests_through_the_workload_that_comes() -> None:
    cluster = Cluster()
    cluster.job["metadata"]["labels"][well_known.QUEUE_LABEL] = "main"
    api, found = stored(cluster)
    path, asked = resources.WORKLOAD.path("team-cv", "w"), []

    def comes(method: str, place: str) -> None:
        if method == "GET" and "/workloads" in place:
            asked.append(place)
            if len(asked) == 2:
                labels = {"kueue.x-k8s.io/job-uid": found.job["metadata"]["uid"]}
                metadata = {"name": "w", "namespace": "team-cv", "labels": labels}
                api.objects[path] = {"metadata": metadata, "spec": {}}

    api.before = comes
    patches.cancel(api, found, cluster.seen(), 0.0)
    assert api.objects[path]["spec"]["active"] is False
    assert well_known.QUEUE_LABEL in api.objects[found.path]["metadata"]["labels"]


def test_a_job_whose_queue_nobody_serves_leaves_it_when_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "_WORKLOAD_SECONDS", 0.1)
    cluster = Cluster()
    cluster.job["metadata"]["labels"][well_known.QUEUE_LABEL] = "main"
    api, found = stored(cluster)
    patches.cancel(api, found, cluster.seen(), 0.0)
    assert well_known.QUEUE_LABEL not in api.objects[found.path]["metadata"]["labels"]
    assert api.objects[found.path]["spec"]["suspend"] is True


def test_acts_that_somebody_spoilt_tell_nothing() -> None:
    cluster = Cluster().note(well_known.ACTS_ANNOTATION, '[{"broken": ')
    assert user_actions.read(cluster.job) == ()
    assert user_actions.resumed(Cluster().note(well_known.ACTS_ANNOTATION, '[[1.0, "Resumed", ""]]').job) == 1
