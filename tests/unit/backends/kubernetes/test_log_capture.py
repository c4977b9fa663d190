"""Lines of pods as the recorder hears them: streams that break, logs that were rotated, pods that are gone."""

from __future__ import annotations

import threading

import pytest
from tests.unit.cluster_objects import ended, running
from tests.unit.history_support import shared_archive, stored_lines
from tests.unit.kube_node import Node, stamped

from mpijob.backends.kubernetes.logs import pod_logs
from mpijob.backends.kubernetes.logs.archive import of_archive
from mpijob.backends.kubernetes.recorder.log_capture import ContainerRun, LogCapture
from mpijob.backends.kubernetes.recorder.recorder import Recorder
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.launch.rank_output import ranks_in
from mpijob.history.archive import Archive
from mpijob.history.retention import RetentionSettings
from mpijob.model import Family, JobRef, JobState, LogQuery, Phase, Role

archive = pytest.fixture(shared_archive)
POD = "/api/v1/namespaces/cv/pods/p"
REF = JobRef("cv", "bert", "u1")
KEY = REF.key


@pytest.fixture
def node() -> Node:
    node = Node()
    node.objects[POD] = _pod(running())
    return node


def _pod(status: Document) -> Document:
    return {"metadata": {"name": "p", "namespace": "cv", "uid": "pod-1"}, "status": status}


def _life(restarts: int = 0) -> ContainerRun:
    voice = pod_logs.PodLogSource("cv", "p", "node", Role.WORKER, 0, 1, Family.OPENMPI, False)
    return ContainerRun(voice, "pod-1", restarts)


def _heard(node: Node, archive: Archive, restarts: int = 0) -> LogCapture:
    archive.put_job(JobState(ref=REF, phase=Phase.RUNNING), now=1.0)
    listener = LogCapture(node, archive, KEY, _life(restarts))
    listener.run()
    return listener


def _lines(archive: Archive) -> list[bytes]:
    return [raw for voice in archive.sources(KEY) for raw in stored_lines(archive, voice)]


def _reasons(archive: Archive) -> list[str]:
    return [gap.reason for gap in archive.gaps(KEY)]


def test_streams_that_break_are_taken_up_behind_the_last_line(
    node: Node, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpijob.backends.kubernetes.recorder.log_capture._RETRY_SECONDS", 0.001)
    lines = [stamped(number // 3, f"text {number}") for number in range(30)]  # three lines each moment
    node.said[f"{POD}/log"] = lines
    node.breaks = [4, 7, 1, 12]
    node.objects[POD] = _pod(ended(0, 50))
    _heard(node, archive)
    assert _lines(archive) == lines
    assert _reasons(archive) == []
    assert archive.sources(KEY)[0].ended


def test_a_stream_that_a_server_ended_too_early_is_looked_at_again(
    node: Node, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpijob.backends.kubernetes.recorder.log_capture._RETRY_SECONDS", 0.001)
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
    first = LogCapture(node, archive, KEY, _life())
    for number in range(3):
        first.capture.write(stamped(number))
    first.capture.flush()
    node.said[f"{POD}/log"] = [stamped(number) for number in range(7, 9)]
    _heard(node, archive)
    (gap,) = archive.gaps(KEY)
    assert "rotated this part of the log" in gap.reason
    texts = [line.text for line in of_archive(archive).logs(REF, LogQuery())]
    assert texts[:3] == [b"line 0", b"line 1", b"line 2"]
    assert b"lines are missing here" in texts[3]
    assert texts[4:] == [b"line 7", b"line 8"]
    assert (gap.last_ns - gap.first_ns) == 500_000_000


def test_a_pod_that_is_gone_leaves_a_gap_and_a_finished_voice(node: Node, archive: Archive) -> None:
    del node.objects[POD]
    _heard(node, archive)
    assert _reasons(archive) == ["the pod was deleted before its log was read completely"]
    assert archive.sources(KEY)[0].ended


def test_the_life_before_a_restart_is_read_from_its_own_log(node: Node, archive: Archive) -> None:
    node.objects[POD] = _pod(running(restarts=1))
    node.before_restart[f"{POD}/log"] = [stamped(1), stamped(2)]
    node.said[f"{POD}/log"] = [stamped(5)]
    _heard(node, archive)
    assert _lines(archive) == [stamped(1), stamped(2)]
    assert node.opened[-1]["previous"] == "true"
    node.objects[POD] = _pod(running(restarts=2))
    archive.delete_job(KEY)
    _heard(node, archive)
    assert _reasons(archive) == ["the container had restarted more than once before this part could be read"]


def test_a_full_disk_only_makes_the_listener_wait(
    node: Node, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpijob.history.storage import chunks

    monkeypatch.setattr("mpijob.backends.kubernetes.recorder.log_capture._LONGEST_PAUSE", 0.001)
    monkeypatch.setattr("mpijob.history.log_writer.BUFFER_BYTES", 100)
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


@pytest.mark.thorough
def test_a_listener_that_is_just_starting_is_not_taken_for_one_that_has_ended(
    node: Node, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a flush comes between; a second listener of the same log would store its lines twice."""
    node.said[f"{POD}/log"] = [stamped(1)]
    archive.put_job(JobState(ref=REF, phase=Phase.RUNNING), now=1.0)
    recording = Recorder(node, archive, RetentionSettings(), "cv")
    begin, flushes = LogCapture.start, []

    def late(listener: LogCapture) -> None:
        flush = threading.Thread(target=recording._flush)
        flush.start()
        flush.join(0.2)  # with the mistake it would be done by now, and the listener forgotten
        flushes.append(flush)
        begin(listener)

    monkeypatch.setattr(LogCapture, "start", late)
    recording._capture(KEY, _life())
    (listener,) = recording._captures.values()
    flushes[0].join(10)
    assert [*recording._captures.values()] == [listener]
    listener.close()
    listener.join(10)
