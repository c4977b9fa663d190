"""The recorder over an API server's memory: what it writes down of jobs and keeps. The bed has its twin tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.unit.backends.kubernetes.test_attempts import first_attempt, second_attempt
from tests.unit.cluster_objects import at_work, ended
from tests.unit.history_support import shared_archive
from tests.unit.kube_node import TEAM, Node, lay_out

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.logs.archive import of_archive, open_recorded
from mpijob.backends.kubernetes.metrics import pod_usage, prometheus_query
from mpijob.backends.kubernetes.metrics.pod_usage import METRICS_API, POD_METRICS
from mpijob.backends.kubernetes.recorder import recorder
from mpijob.backends.kubernetes.recorder.recorder import Recorder
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.status.attempts import richer
from mpijob.errors import Conflict, Finding
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.audit import audit_query
from mpijob.history.audit.audit_log import audit_path
from mpijob.history.retention import RetentionSettings
from mpijob.model import JobRef, JobState, LogQuery, Phase, RankState, Role, Sample, WorkerState
from mpijob.model.status.accounts import AccountQuery
from mpijob.model.status.audit import AuditQuery
from mpijob.settings import Settings

archive = pytest.fixture(shared_archive)


def test_what_was_known_of_pods_stays_when_they_are_gone() -> None:
    worker = WorkerState(0, "w", Phase.RUNNING, node="n1", exit_code=3, memory_limit_bytes=5)
    ref = JobRef("cv", "bert", "u1")
    before = JobState(ref=ref, phase=Phase.RUNNING, workers=(worker,), ranks=(RankState(0, 0),), started=1.0)
    now = JobState(ref=ref, phase=Phase.FAILED, workers=(WorkerState(0, "without-a-pod", Phase.FAILED),))
    state = richer(before, now)
    assert state.phase is Phase.FAILED
    assert (state.workers[0].node, state.workers[0].exit_code, state.workers[0].phase) == (
        "n1",
        3,
        Phase.FAILED,
    )
    assert (state.ranks, state.started) == (before.ranks, 1.0)
    again = JobState(ref=ref, phase=Phase.PENDING, attempt=2)
    assert richer(before, again) == again
    for going in (Phase.PENDING, Phase.RUNNING, Phase.CANCELLED):
        assert richer(state, JobState(ref=ref, phase=going)) == state, "an end that was seen stays"
    assert richer(before, JobState(ref=ref, phase=Phase.CANCELLED)).phase is Phase.CANCELLED
    known = msgspec.structs.replace(state, launcher_exit_code=3, findings=(Finding("RANK_EXIT", "x"),))
    unknown = msgspec.structs.replace(
        state, reason="LauncherUnaccounted", findings=(Finding("UNKNOWN", "?"),)
    )
    assert richer(known, unknown) == known
    assert richer(msgspec.structs.replace(known, launcher_exit_code=None), unknown).reason == known.reason
    later = msgspec.structs.replace(known, findings=(Finding("OOM_KILLED", "x"),))
    assert richer(known, later) == later, "what is learnt later counts"


class Running:
    """A recorder in a thread, over a cluster in memory."""

    def __init__(self, node: Node, archive: Archive, namespace: str = TEAM) -> None:
        self.stop = threading.Event()
        self.ready = threading.Event()
        self.recorder = Recorder(node, archive, RetentionSettings(), namespace)
        self._thread = threading.Thread(target=self.recorder.run, args=(self.stop, self.ready.set))

    def __enter__(self) -> Running:
        self._thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


def _eventually(look: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.01)
    return found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_TICK": 0.01, "_FLUSH": 0.02, "_LAST_READ": 0.05}.items():
        monkeypatch.setattr(recorder, f"{name}_SECONDS", seconds)


@pytest.mark.thorough
@pytest.mark.usefixtures("quick")
def test_a_job_is_written_down_while_it_runs_and_answered_for_when_it_is_gone(archive: Archive) -> None:
    node, cluster = Node(), at_work()
    path = lay_out(node, cluster)
    ref = JobRef(TEAM, cluster.spec.name)

    def state() -> JobState | None:
        found = ArchiveReader(archive).record(ref)
        return found.state if found else None

    with Running(node, archive):
        _eventually(lambda: (found := state()) and found.ranks)
        launcher = cluster.name_of("launcher", 0)
        pod = cluster.pods[launcher] | {"status": ended(0, 60)}
        cluster.condition("Complete")
        node.put(resources.POD.path(TEAM, launcher), pod)
        node.put(path, cluster.job)
        _eventually(lambda: (found := state()) and found.phase is Phase.SUCCEEDED)
        for name in cluster.pods:
            node.remove(resources.POD.path(TEAM, name))
        node.remove(path)
        _eventually(lambda: (found := ArchiveReader(archive).record(ref)) and found.deleted)
    past = open_recorded(archive.directory)
    assert past is not None
    record = past.record(ref)
    assert record is not None
    assert [moment.phase for moment in record.moments][-1] == "Succeeded"
    assert {fact.kind for fact in record.facts} == {"pod", "document"}
    ranks = {line.rank: line.text for line in past.logs(ref, LogQuery(roles=(Role.RANK,)))}
    assert ranks == {0: b"hello", 1: b"hello"}
    assert past.spec(ref) == cluster.spec
    assert [event.reason for event in past.events(ref)].count("WorkersReady") == 1
    assert past.events(ref)[-1].reason == "Deleted"
    (end,) = audit_query.entries(audit_path(archive.directory), AuditQuery(verbs=("end",)))
    assert (end.note("phase"), end.user.username) == ("Succeeded", "system:mpijob:recorder")
    assert float(end.note("seconds")) > 0
    (account,) = past.accounts(AccountQuery())
    assert (account.phase, account.workers, account.deleted is not None) == (Phase.SUCCEEDED, 2, True)
    assert account.core_hours > 0


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.hostile
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("order", [(TEAM, "team-b"), ("team-b", TEAM)], ids=" then ".join)
def test_jobs_of_two_namespaces_with_one_uid_are_recorded_side_by_side(
    archive: Archive, order: tuple[str, str]
) -> None:
    """Whoever claims a uid first keeps nobody out: jobs, pods and their uids have the same names in both."""
    node, clusters = Node(), {namespace: at_work(namespace=namespace) for namespace in order}
    refs = {namespace: job_objects.ref_of(cluster.job) for namespace, cluster in clusters.items()}
    assert refs[TEAM].uid == refs["team-b"].uid
    past = of_archive(archive)

    def told(namespace: str) -> dict[int | None, bytes]:
        return {line.rank: line.text for line in past.logs(refs[namespace], LogQuery(roles=(Role.RANK,)))}

    def complete(namespace: str) -> bool:
        return told(namespace).keys() == {0, 1}

    with Running(node, archive, namespace=""):
        for namespace in order:
            path = lay_out(node, clusters[namespace], said=namespace)
            _eventually(partial(complete, namespace))
        for name in clusters[order[1]].pods:
            node.remove(resources.POD.path(order[1], name))
        node.remove(path)
        _eventually(lambda: (found := past.record(refs[order[1]])) and found.deleted)
    for namespace in order:
        assert set(told(namespace).values()) == {namespace.encode()}
        assert len(archive.sources(refs[namespace].key)) == len(clusters[namespace].pods)
    there, deleted = (past.record(refs[namespace]) for namespace in order)
    assert there is not None
    assert deleted is not None
    assert (there.deleted, there.state.phase) == (None, Phase.CANCELLED)  # as one that nobody saw deleted
    assert [state.ref for state in past.unfinished_jobs()] == [refs[order[0]]]
    assert deleted.state.ref == refs[order[1]]
    assert {one.ref for one in past.accounts(AccountQuery())} == {*refs.values()}


@pytest.mark.req("FR-OBS-001", "Q17")
@pytest.mark.usefixtures("quick")
def test_what_the_metrics_api_measures_is_written_down_while_a_job_runs(archive: Archive) -> None:
    node, cluster = Node(), at_work()
    lay_out(node, cluster)
    versions = [{"groupVersion": resources.TRAINER_API}, {"groupVersion": METRICS_API}]
    node.objects["/apis"] = {"metadata": {}, "groups": [{"versions": versions}]}
    used = [{"usage": {"cpu": "250m", "memory": "64Mi"}}]
    for name in cluster.pods:
        told = {
            "metadata": {"name": name, "namespace": TEAM},
            "timestamp": "2026-11-15T00:00:30Z",
            "containers": used,
        }
        node.objects[POD_METRICS.path(TEAM, name)] = told
    with Running(node, archive):
        _eventually(lambda: [*ArchiveReader(archive).accounts(AccountQuery())])
        found = _eventually(lambda: ArchiveReader(archive).samples(JobRef(TEAM, cluster.spec.name)))
    assert {(one.worker, one.cpu_cores, one.memory_bytes) for one in found} == {
        (0, 0.25, 64 << 20),
        (1, 0.25, 64 << 20),
    }
    (account,) = ArchiveReader(archive).accounts(AccountQuery())
    assert (account.measured, account.peak_bytes) == (True, 64 << 20)


def test_what_only_prometheus_knows_is_added_to_what_the_metrics_api_measured() -> None:
    measured = Sample(5.0, 1, 0.25, 64, 2)
    used = {
        "time": 7.0,
        "cpu_cores": 9.0,
        "memory_bytes": 9.0,
        "network": 1.5,
        "gpus": 0.5,
        "gpu_memory_bytes": 8.0,
    }
    assert pod_usage._with(measured, used, 1, 2) == Sample(5.0, 1, 0.25, 64, 2, 0.5, 8, 0.0, 1.5)
    assert pod_usage._with(None, used, 1, 2) == Sample(7.0, 1, 9.0, 9, 2, 0.5, 8, 0.0, 1.5)
    assert pod_usage._with(measured, {}, 1, 2) == measured
    assert prometheus_query.of_settings(Settings()) is None
    assert prometheus_query.of_settings(Settings(prometheus="http://p:9090")) is not None


@pytest.mark.usefixtures("quick")
def test_a_job_that_went_while_nobody_recorded_is_told_so(archive: Archive) -> None:
    node, cluster = Node(), at_work()
    path = lay_out(node, cluster)
    ref = JobRef(TEAM, cluster.spec.name)
    with Running(node, archive):
        _eventually(lambda: ArchiveReader(archive).record(ref))
    node.objects.pop(path)
    with Running(node, archive):
        _eventually(lambda: (found := ArchiveReader(archive).record(ref)) and found.deleted)
    state = ArchiveReader(archive).state(ref)
    assert state is not None
    assert "deleted while no recorder ran" in state.message
    assert "NotRecorded" in {event.reason for event in ArchiveReader(archive).events(ref)}


@pytest.mark.req("B-11", "C-history")
@pytest.mark.usefixtures("quick")
def test_attempts_are_written_down_as_they_ended(archive: Archive) -> None:
    node = Node()
    first = first_attempt(node)
    ref = JobRef(TEAM, first.spec.name)
    reader = ArchiveReader(archive)
    with Running(node, archive):
        _eventually(lambda: (found := reader.state(ref)) and archive.attempts(found.ref.key))
        second_attempt(node, first)
        _eventually(lambda: len(reader.attempts(ref)) == 2)
    failed, running = reader.attempts(ref)
    assert (failed.attempt, failed.phase, failed.launcher_exit_code, running.attempt) == (
        1,
        Phase.FAILED,
        3,
        2,
    )
    assert failed.findings
    archive.delete_job(failed.ref.key)
    assert reader.attempts(ref) == ()


@pytest.mark.usefixtures("quick")
def test_an_attempt_that_ended_before_there_was_a_recorder_is_written_down(archive: Archive) -> None:
    node = Node()
    first = first_attempt(node)
    second_attempt(node, first)
    ref = JobRef(TEAM, first.spec.name)
    with Running(node, archive):
        _eventually(lambda: len(ArchiveReader(archive).attempts(ref)) == 2)
    assert ArchiveReader(archive).attempts(ref)[0].launcher_exit_code == 3


@pytest.mark.usefixtures("quick")
def test_a_second_recorder_is_refused(archive: Archive) -> None:
    node = Node()
    with Running(node, archive), pytest.raises(Conflict, match="another recorder"):
        Recorder(node, Archive(archive.directory, shared=True), RetentionSettings(), TEAM).run(
            threading.Event()
        )
