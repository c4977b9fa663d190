"""The recorder over an API server's memory: what breaks, what restarts, what is gone. The bed has its twin tests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cluster_objects import COUNTED, Cluster, at_work, ended, running
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes import gathering, kinds, logs, platform_metrics, recorder, usage
from mpijob.backends.kubernetes.failures import ApiError
from mpijob.backends.kubernetes.listening import Life, Listener
from mpijob.backends.kubernetes.recorder import Recorder
from mpijob.backends.kubernetes.recording import richer
from mpijob.backends.kubernetes.remembered import remembered
from mpijob.backends.kubernetes.usage import METRICS_API, POD_METRICS
from mpijob.dialects.output import ranks_in
from mpijob.dialects.terms import Document
from mpijob.errors import Conflict, Finding
from mpijob.history import audit_reading
from mpijob.history.archive import Archive
from mpijob.history.audit import directory_of
from mpijob.history.keeping import Policy
from mpijob.history.past import Past
from mpijob.model import Family, JobRef, JobState, LogQuery, Phase, RankState, Role, Sample, WorkerState
from mpijob.model.accounts import AccountQuery
from mpijob.model.audit import AuditQuery
from mpijob.settings import Settings

TEAM = "team-cv"
POD = "/api/v1/namespaces/cv/pods/p"
SERVED = {"groups": [{"versions": [{"groupVersion": kinds.TRAINER_API}]}]}


def stamped(number: int, text: str = "") -> bytes:
    return (
        f"2026-11-15T00:00:{number // 10:02}.{number % 10:d}00000000Z {text or f'line {number}'}\n".encode()
    )


class Stream:
    """Lines that may break off, or a watch that waits for what the test does."""

    def __init__(self, lines: list[bytes], breaks: bool = False) -> None:
        self.items: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for one in lines:
            self.items.put(one)
        self._breaks = breaks

    def over(self) -> Stream:
        self.items.put(None)
        return self

    def wait(self, seconds: float | None) -> bool:
        deadline = time.monotonic() + (30 if seconds is None else seconds)
        while self.items.empty():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        item = self.items.get(timeout=30)
        if item is None:
            if self._breaks:
                raise ApiError("cut", reason="Cut")
            raise StopIteration
        return item

    def close(self) -> None:
        self._breaks = False
        self.items.put(None)


class Node(Store):
    """An API server with pods that speak; `breaks` are the numbers of lines after which streams are cut."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, list[bytes]] = {}
        self.before_restart: dict[str, list[bytes]] = {}
        self.breaks: list[int] = []
        self.opened: list[dict[str, str]] = []
        self.watches: dict[str, list[Stream]] = {}
        self.objects["/apis"] = {"metadata": {}, **SERVED}

    def lines(self, path: str, **query: Any) -> Any:
        if query.get("watch"):
            self.watches.setdefault(path, []).append(stream := Stream([]))
            return stream
        self.opened.append({key: value for key, value in query.items() if value})
        known = self.before_restart if query.get("previous") else self.said
        if path not in known:
            raise ApiError("gone", status=404)
        lines = [line for line in known[path] if line.partition(b" ")[0] >= query["sinceTime"].encode()]
        if self.breaks:
            return Stream(lines[: self.breaks.pop(0)], breaks=True).over()
        return Stream(lines).over()

    def raw(self, path: str, **query: str) -> bytes:
        return b"".join(self.said.get(path, []))

    def put(self, path: str, document: Document) -> None:
        """Make or change an object, and tell the watches of its collection."""
        document["metadata"].setdefault("resourceVersion", "1")
        kind = "MODIFIED" if path in self.objects else "ADDED"
        self.objects[path] = document
        self._tell(path, kind, document)

    def remove(self, path: str) -> None:
        self._tell(path, "DELETED", self.objects.pop(path))

    def _tell(self, path: str, kind: str, document: Document) -> None:
        for stream in self.watches.get(path.rpartition("/")[0], []):
            stream.items.put(msgspec.json.encode({"type": kind, "object": document}))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "history"), shared=True)


@pytest.fixture
def node() -> Node:
    node = Node()
    node.objects[POD] = _pod(running())
    return node


def _pod(status: Document) -> Document:
    return {"metadata": {"name": "p", "namespace": "cv", "uid": "pod-1"}, "status": status}


def _life(restarts: int = 0) -> Life:
    voice = logs.Voice("cv", "p", "node", Role.WORKER, 0, 1, Family.OPENMPI, False)
    return Life(voice, "pod-1", restarts)


def _heard(node: Node, archive: Archive, restarts: int = 0) -> Listener:
    archive.put(JobState(ref=JobRef("cv", "bert", "u1"), phase=Phase.RUNNING), now=1.0)
    listener = Listener(node, archive, "u1", _life(restarts))
    listener.run()
    return listener


def _lines(archive: Archive) -> list[bytes]:
    past = Past(archive)
    return [raw for voice in archive.voices("u1") for raw in past.raw(voice)]


def _reasons(archive: Archive) -> list[str]:
    return [gap.reason for gap in archive.gaps("u1")]


# -- listening -------------------------------------------------------------------------------------
def test_streams_that_break_are_taken_up_behind_the_last_line(
    node: Node, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpijob.backends.kubernetes.listening._AGAIN_SECONDS", 0.001)
    lines = [stamped(number // 3, f"text {number}") for number in range(30)]  # three lines each moment
    node.said[f"{POD}/log"] = lines
    node.breaks = [4, 7, 1, 12]
    node.objects[POD] = _pod(ended(0, 50))
    _heard(node, archive)
    assert _lines(archive) == lines
    assert _reasons(archive) == []
    assert archive.voices("u1")[0].ended


def test_a_stream_that_a_server_ended_too_early_is_looked_at_again(
    node: Node, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpijob.backends.kubernetes.listening._AGAIN_SECONDS", 0.001)
    node.said[f"{POD}/log"] = [stamped(1)]
    asked = 0

    def before(method: str, path: str) -> None:
        nonlocal asked
        asked += path == POD
        if asked == 3:  # the container goes on for a while, then it has ended
            node.said[f"{POD}/log"] += [stamped(2), stamped(3, "without an end").rstrip(b"\n")]
            node.objects[POD] = _pod(ended(0, 50))

    node.before = before
    _heard(node, archive)
    assert _lines(archive) == [stamped(1), stamped(2), stamped(3, "without an end")]
    assert _reasons(archive) == []


def test_what_a_node_has_rotated_away_is_a_gap_between_its_neighbours(node: Node, archive: Archive) -> None:
    node.objects[POD] = _pod(ended(0, 50))
    first = Listener(node, archive, "u1", _life())
    for number in range(3):
        first.capture.take(stamped(number))
    first.capture.flush()
    node.said[f"{POD}/log"] = [stamped(number) for number in range(7, 9)]
    _heard(node, archive)
    (gap,) = archive.gaps("u1")
    assert "put this part of the log away" in gap.reason
    told = [line.split(b" ", 1)[1] for line in _lines(archive)]
    assert told[:3] == [b"line 0\n", b"line 1\n", b"line 2\n"]
    assert b"lines are missing here" in b"".join(told)
    assert told[-2:] == [b"line 7\n", b"line 8\n"]
    assert (gap.last_ns - gap.first_ns) == 500_000_000


def test_a_pod_that_is_gone_leaves_a_gap_and_a_finished_voice(node: Node, archive: Archive) -> None:
    del node.objects[POD]
    _heard(node, archive)
    assert _reasons(archive) == ["the pod was gone before the rest of its log could be read"]
    assert archive.voices("u1")[0].ended


def test_the_life_before_a_restart_is_read_from_its_own_log(node: Node, archive: Archive) -> None:
    node.objects[POD] = _pod(running(restarts=1))
    node.before_restart[f"{POD}/log"] = [stamped(1), stamped(2)]
    node.said[f"{POD}/log"] = [stamped(5)]
    _heard(node, archive)
    assert _lines(archive) == [stamped(1), stamped(2)]
    assert node.opened[-1]["previous"] == "true"
    node.objects[POD] = _pod(running(restarts=2))
    archive.forget("u1")
    _heard(node, archive)
    assert _reasons(archive) == ["the container had restarted more than once before this part could be read"]


def test_a_full_disk_only_makes_the_listener_wait(
    node: Node, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpijob.history import chunks

    monkeypatch.setattr("mpijob.backends.kubernetes.listening._LONGEST_PAUSE", 0.001)
    monkeypatch.setattr("mpijob.history.capture.BUFFER_BYTES", 100)
    whole, refused = chunks.append, iter([True, True, False, True] + [False] * 100)

    def append(path: str, at: int, frames: bytes) -> int:
        if next(refused):
            raise OSError(28, "No space left on device")
        return whole(path, at, frames)

    monkeypatch.setattr(chunks, "append", append)
    node.said[f"{POD}/log"] = [stamped(number) for number in range(20)]
    node.objects[POD] = _pod(ended(0, 50))
    _heard(node, archive)
    assert _lines(archive) == [stamped(number) for number in range(20)]


def test_a_launchers_chunks_know_which_ranks_speak_in_them() -> None:
    assert ranks_in(b"[1,0]<stdout>: a\n[1,7]<stderr>: b [1,x]", Family.OPENMPI) == {0, 7}
    assert ranks_in(b"[rank 3] a\n", Family.MPICH) == {3}


# -- recording -------------------------------------------------------------------------------------
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

    def __init__(self, node: Node, archive: Archive) -> None:
        self.stop = threading.Event()
        self.ready = threading.Event()
        self.recorder = Recorder(node, archive, Policy(), TEAM)
        self._thread = threading.Thread(target=self.recorder.run, args=(self.stop, self.ready.set))

    def __enter__(self) -> Running:
        self._thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


def _laid_out(node: Node, cluster: Cluster) -> str:
    """Put a job's objects where an API server has them; return the job's path."""
    name = cluster.job["metadata"]["name"]
    path = kinds.TRAINJOB.path(TEAM, name)
    node.put(path, cluster.job)
    if cluster.runtime is not None:
        node.put(kinds.TRAINING_RUNTIME.path(TEAM, name), cluster.runtime)
    for pod in cluster.pods.values():
        pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = name
        node.put(kinds.POD.path(TEAM, pod["metadata"]["name"]), pod)
        launcher = "launcher" in pod["metadata"]["name"]
        words = (
            [*COUNTED.splitlines(), "[1,0]<stdout>:hello", "[1,1]<stdout>:hello"] if launcher else ["sshd"]
        )
        node.said[kinds.POD.path(TEAM, pod["metadata"]["name"], "log")] = [
            stamped(number, text) for number, text in enumerate(words)
        ]
    return path


def _eventually(look: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.01)
    return found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_TICK": 0.01, "_FLUSH": 0.02, "_LAST_LOOK": 0.05}.items():
        monkeypatch.setattr(recorder, f"{name}_SECONDS", seconds)


@pytest.mark.usefixtures("quick")
def test_a_job_is_written_down_while_it_runs_and_answered_for_when_it_is_gone(archive: Archive) -> None:
    node, cluster = Node(), at_work()
    path = _laid_out(node, cluster)
    ref = JobRef(TEAM, cluster.spec.name)

    def state() -> JobState | None:
        found = Past(archive).record(ref)
        return found.state if found else None

    with Running(node, archive):
        _eventually(lambda: (found := state()) and found.ranks)
        launcher = cluster.name_of("launcher", 0)
        pod = cluster.pods[launcher] | {"status": ended(0, 60)}
        cluster.condition("Complete")
        node.put(kinds.POD.path(TEAM, launcher), pod)
        node.put(path, cluster.job)
        _eventually(lambda: (found := state()) and found.phase is Phase.SUCCEEDED)
        for name in cluster.pods:
            node.remove(kinds.POD.path(TEAM, name))
        node.remove(path)
        _eventually(lambda: (found := Past(archive).record(ref)) and found.deleted)
    past = remembered(archive.directory)
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
    (end,) = audit_reading.entries(directory_of(archive.directory), AuditQuery(verbs=("end",)))
    assert (end.note("phase"), end.user.username) == ("Succeeded", "system:mpijob:recorder")
    assert float(end.note("seconds")) > 0
    (account,) = past.accounts(AccountQuery())
    assert (account.phase, account.workers, account.deleted is not None) == (Phase.SUCCEEDED, 2, True)
    assert account.core_hours > 0


@pytest.mark.security
@pytest.mark.usefixtures("quick")
def test_an_object_with_the_uid_of_another_namespaces_job_changes_nothing_of_its_record(
    archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    node, cluster = Node(), at_work()
    path = _laid_out(node, cluster)
    bobs = JobRef("team-b", "bobs", gathering.ref_of(cluster.job).uid)
    archive.put(JobState(ref=bobs, phase=Phase.RUNNING, created=1.0), now=1.0)
    before = Past(archive).record(bobs)
    with Running(node, archive) as running:
        _eventually(lambda: "is not recorded" in caplog.text)
        for name in cluster.pods:
            node.remove(kinds.POD.path(TEAM, name))
        node.remove(path)
        _eventually(lambda: not running.recorder._rounds.there())
        running.recorder._write_gone(gathering.ref_of(cluster.job))
    assert Past(archive).record(bobs) == before
    assert archive.voices(bobs.uid) == []
    assert caplog.text.count("is not recorded") == 1
    assert Past(archive).state(JobRef(TEAM, cluster.spec.name)) is None


def test_a_listener_that_is_just_starting_is_not_taken_for_one_that_has_ended(
    node: Node, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a flush comes between; a second listener of the same log would store its lines twice."""
    node.said[f"{POD}/log"] = [stamped(1)]
    archive.put(JobState(ref=JobRef("cv", "bert", "u1"), phase=Phase.RUNNING), now=1.0)
    recording = Recorder(node, archive, Policy(), "cv")
    begin, flushes = Listener.start, []

    def late(listener: Listener) -> None:
        flush = threading.Thread(target=recording._flush)
        flush.start()
        flush.join(0.2)  # with the mistake it would be done by now, and the listener forgotten
        flushes.append(flush)
        begin(listener)

    monkeypatch.setattr(Listener, "start", late)
    recording._hear("u1", _life())
    (listener,) = recording._listeners.values()
    flushes[0].join(10)
    assert [*recording._listeners.values()] == [listener]
    listener.close()
    listener.join(10)


@pytest.mark.req("FR-OBS-001", "Q17")
@pytest.mark.usefixtures("quick")
def test_what_the_metrics_api_measures_is_written_down_while_a_job_runs(archive: Archive) -> None:
    node, cluster = Node(), at_work()
    _laid_out(node, cluster)
    versions = [{"groupVersion": kinds.TRAINER_API}, {"groupVersion": METRICS_API}]
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
        _eventually(lambda: [*Past(archive).accounts(AccountQuery())])
        found = _eventually(lambda: Past(archive).samples(JobRef(TEAM, cluster.spec.name)))
    assert {(one.worker, one.cpu_cores, one.memory_bytes) for one in found} == {
        (0, 0.25, 64 << 20),
        (1, 0.25, 64 << 20),
    }
    (account,) = Past(archive).accounts(AccountQuery())
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
    assert usage._with(measured, used, 1, 2) == Sample(5.0, 1, 0.25, 64, 2, 0.5, 8, 0.0, 1.5)
    assert usage._with(None, used, 1, 2) == Sample(7.0, 1, 9.0, 9, 2, 0.5, 8, 0.0, 1.5)
    assert usage._with(measured, {}, 1, 2) == measured
    assert platform_metrics.of_settings(Settings()) is None
    assert platform_metrics.of_settings(Settings(prometheus="http://p:9090")) is not None


@pytest.mark.usefixtures("quick")
def test_a_job_that_went_while_nobody_recorded_is_told_so(archive: Archive) -> None:
    node, cluster = Node(), at_work()
    path = _laid_out(node, cluster)
    ref = JobRef(TEAM, cluster.spec.name)
    with Running(node, archive):
        _eventually(lambda: Past(archive).record(ref))
    node.objects.pop(path)
    with Running(node, archive):
        _eventually(lambda: (found := Past(archive).record(ref)) and found.deleted)
    state = Past(archive).state(ref)
    assert state is not None
    assert "deleted while nobody recorded" in state.message
    assert "NotRecorded" in {event.reason for event in Past(archive).events(ref)}


@pytest.mark.usefixtures("quick")
def test_a_second_recorder_is_refused(archive: Archive) -> None:
    node = Node()
    with Running(node, archive), pytest.raises(Conflict, match="another recorder"):
        Recorder(node, Archive(archive.directory, shared=True), Policy(), TEAM).run(threading.Event())
