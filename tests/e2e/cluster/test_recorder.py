"""The recorder on a real cluster: jobs are written down while they run and answered for when they are gone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place

from mpijob import Client, Phase
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import NotFound
from mpijob.history.records import Record
from mpijob.model import LogQuery, Role

COUNTS = 'i=0; while [ $i -lt 60 ]; do i=$((i + 1)); echo "$OMPI_COMM_WORLD_RANK said $i"; sleep 0.1; done'
EXPECTED = {rank: [f"{rank} said {number}" for number in range(1, 61)] for rank in (0, 1)}


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "recorder") as place:
        yield place


@contextmanager
def recorder(place: Place, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a recorder that is ready, and end it if the test did not."""
    argv = place.argv("recorder", *words)
    process = subprocess.Popen(argv, env=place.environ(), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "recording" in process.stderr.readline()
        yield process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


def said(client: Client, name: str) -> dict[int, list[str]]:
    lines: dict[int, list[str]] = {}
    for line in client.logs(name):
        if line.rank is not None:
            lines.setdefault(line.rank, []).append(line.text.decode())
    return lines


def known(place: Place, name: str) -> Record | None:
    try:
        return place.client.record(name)
    except NotFound:
        return None


def heard(place: Place, name: str, lines: int) -> bool:
    """Whether the record, which is read while it is written, holds at least so many lines."""
    past = place.client.backend.history()
    if past is None:
        return False
    return sum(line.rank is not None for line in past.logs(place.client.ref(name), LogQuery())) >= lines


@pytest.mark.req("C-history", "US2-3")
def test_a_recorder_killed_in_the_middle_loses_nothing_and_tells_nothing_twice(place: Place) -> None:
    """SIGKILL twice while the ranks speak; then the job goes, and the record answers as the cluster did."""
    job = place.client.submit(a_job("counted", COUNTS))
    for lines in (20, 70):
        with recorder(place) as process:
            eventually(partial(heard, place, "counted", lines), f"{lines} lines are recorded", PATIENCE)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
    with recorder(place) as process:
        job.wait_for_completion(PATIENCE)
        live, spec, events = [*job.logs()], job.spec, {event.reason for event in job.events()}
        state = job.state()
        eventually(
            lambda: (found := known(place, "counted")) and found.state.phase is Phase.SUCCEEDED,
            "the end is known",
        )
        job.delete(grace_period=0)
        eventually(
            lambda: (found := known(place, "counted")) and found.deleted, "it is known that it is gone"
        )
        assert said(place.client, "counted") == EXPECTED
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert [line for line in place.client.logs("counted") if line.rank is not None] == [
        line for line in live if line.rank is not None
    ]
    assert place.client.spec("counted") == spec
    assert events <= {event.reason for event in place.client.events("counted")}
    past = place.client.state("counted")
    assert (past.phase, past.ref, past.ranks, past.finished) == (
        state.phase,
        state.ref,
        state.ranks,
        state.finished,
    )
    record = place.client.record("counted")
    # what a worker's sshd said may go with its pod while no recorder runs; then it is told, and ranks miss nothing
    assert [gap for gap in record.gaps if gap.role is not Role.WORKER] == []
    assert [moment.phase for moment in record.moments][-1] == "Succeeded"
    pods = [fact.data for fact in record.facts if fact.kind == "pod"]
    assert {pod["role"] for pod in pods} == {"launcher", "worker"}
    assert all(pod["node"] for pod in pods)
    assert any(fact.kind == "node" and fact.data["kubeletVersion"] for fact in record.facts)
    assert all(worker.node for worker in past.workers)
    for words in (
        ("logs", "counted"),
        ("describe", "counted"),
        ("events", "counted"),
        ("get", "counted", "-o", "yaml"),
    ):
        done = place.mpijob(*words)
        assert done.returncode == 0, done.stderr
        assert "said 60" in done.stdout or words[0] != "logs"
    assert "counted" in place.mpijob("list", "--deleted").stdout
    assert place.mpijob("delete", "counted", "--forget").returncode == 0
    with pytest.raises(NotFound):
        place.client.state("counted")


@pytest.mark.req("C-history")
def test_what_nobody_recorded_is_told_as_missing(place: Place) -> None:
    """The recorder is killed, and the job deleted before the next one comes: the rest cannot be had any more."""
    job = place.client.submit(a_job("halved", COUNTS))
    with recorder(place) as process:
        eventually(lambda: heard(place, "halved", 20), "20 lines are recorded", PATIENCE)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
    job.delete(grace_period=0)
    with recorder(place):
        eventually(lambda: (found := known(place, "halved")) and found.deleted, "it is known that it is gone")
    state = place.client.state("halved")
    assert state.phase is Phase.CANCELLED
    assert "deleted while no recorder ran" in state.message
    lines = said(place.client, "halved")
    assert all(lines[rank] == EXPECTED[rank][: len(lines[rank])] for rank in lines)
    reasons = {gap.reason for gap in place.client.record("halved").gaps}
    assert reasons == {"the pod was deleted before its log was read completely"}
    assert any(b"lines are missing here" in line.text for line in place.client.logs("halved"))
    assert "NotRecorded" in {event.reason for event in place.client.events("halved")}


@pytest.mark.req("C-history")
def test_what_a_deadline_took_away_is_told_from_the_record_and_a_silence_before_it_by_why(
    place: Place,
) -> None:
    with recorder(place):
        job = place.client.submit(a_job("muted", "echo begun; sleep 300", deadline_seconds=60))
        eventually(lambda: heard(place, "muted", 2), "both ranks are recorded", PATIENCE)
        assert job.wait(PATIENCE).reason == "DeadlineExceeded"
        eventually(lambda: not place.pods(job), "its pods are deleted", PATIENCE)
        assert said(place.client, "muted") == {0: ["begun"], 1: ["begun"]}
        (told,) = job.diagnose().findings
        assert "past its deadline of 60 s, and no rank had written output in the last" in told.message
        assert "mpijob stacks" in told.fixes[0].text


@pytest.mark.req("B-edge-ns", "C-history")
def test_a_job_is_answered_for_after_its_namespace_was_deleted(place: Place, kubeconfig: Path) -> None:
    with own_place(kubeconfig, "recorded-ns") as other:
        settings = other.settings
        with recorder(other, "--all-namespaces") as process:
            other.client.submit(a_job("orphan", "echo begun; sleep 300")).wait(PATIENCE, {Phase.RUNNING})
            eventually(lambda: heard(other, "orphan", 2), "both ranks are recorded", PATIENCE)
            other.api.delete(resources.NAMESPACE.path("", other.namespace))
            eventually(
                lambda: (found := known(other, "orphan")) and found.deleted,
                "it is known that it is gone",
                PATIENCE,
            )
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        with Client(KubernetesBackend(settings), settings=settings) as client:
            assert client.state("orphan").phase.final
            assert said(client, "orphan") == {0: ["begun"], 1: ["begun"]}


def test_two_recorders_of_one_directory_exclude_each_other(place: Place) -> None:
    with recorder(place) as first:
        second = place.mpijob("recorder")
        assert second.returncode != 0
        assert f"process {first.pid}" in second.stderr
        os.kill(first.pid, signal.SIGTERM)
        assert first.wait(PATIENCE) == 0
    with recorder(place):
        pass
