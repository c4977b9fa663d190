"""Earlier attempts of a job on a cluster: told by their objects, and by what a recorder saw while they had pods."""

from __future__ import annotations

import msgspec
from tests.unit.cluster_objects import Cluster, ended, running, stamp
from tests.unit.cluster_support import a_job
from tests.unit.kube_node import TEAM, Node, lay_out

from mpijob.backends.kubernetes.status.attempts import merged
from mpijob.backends.kubernetes.status.job_reader import JobReader
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.model import Family, JobRef, JobState, LauncherPhase, Phase, Retry

RETRY = Retry(limit=1, backoff_seconds=600.0)


def first_attempt(node: Node, retry: Retry = RETRY) -> Cluster:
    """Lay out a job whose first attempt failed with code 3 and whose second one is due in ten minutes."""
    cluster = Cluster(a_job(retry=retry)).workers(running(10)).launcher(ended(3, 60, began=12))
    cluster.condition("Failed", at=61)
    lay_out(node, cluster)
    return cluster


def second_attempt(node: Node, first: Cluster) -> Cluster:
    cluster = Cluster(first.spec, Shape(uid="u-1", family=Family.OPENMPI, attempt=2))
    cluster.workers(running(110)).launcher(running(112))
    cluster.job["metadata"] |= {"creationTimestamp": stamp(100), "uid": "a2-uid"}
    lay_out(node, cluster)
    return cluster


def test_between_two_attempts_the_failed_one_and_the_next_are_told() -> None:
    node = Node()
    ref = JobRef(TEAM, first_attempt(node).spec.name)
    failed, waits = JobReader(node).attempts(ref)
    assert (failed.attempt, failed.phase, failed.launcher_exit_code) == (1, Phase.FAILED, 3)
    assert (waits.attempt, waits.phase, waits.reason) == (2, Phase.QUEUED, "BackingOff")


def test_an_earlier_attempt_stays_with_its_cause_its_launcher_and_its_events() -> None:
    node = Node()
    first = first_attempt(node)
    second_attempt(node, first)
    reader, ref = JobReader(node), JobRef(TEAM, first.spec.name)
    failed, now = reader.attempts(ref)
    assert (failed.attempt, failed.phase, now.attempt, now.phase) == (1, Phase.FAILED, 2, Phase.RUNNING)
    assert failed.findings
    assert failed.launcher is not None
    assert (failed.launcher.phase, failed.launcher.exit_code) == (LauncherPhase.FAILED, 3)
    events, _ = reader.timeline_of(ref)
    assert {event.attempt for event in events} == {1, 2}
    assert [event.reason for event in events if event.attempt == 1][-1] == "Failed"
    assert [event.sequence for event in events] == [*range(1, len(events) + 1)]


def test_what_was_recorded_of_an_attempt_whose_pods_are_gone_is_added() -> None:
    node = Node()
    first = first_attempt(node)
    second_attempt(node, first)
    seen = JobReader(node).attempts(JobRef(TEAM, first.spec.name))
    ref = seen[0].ref
    bare = msgspec.structs.replace(seen[0], launcher_exit_code=None, workers=(), ranks=())
    told = merged([seen[0]], (bare, seen[1]))
    assert told[0].launcher_exit_code == 3
    assert len(told[0].workers) == 2
    lost = JobState(ref=ref, phase=Phase.SUSPENDED, attempt=1)
    third = msgspec.structs.replace(seen[1], attempt=2)
    assert [one.phase for one in merged([lost], (third,))] == [Phase.SUSPENDED, third.phase]
    beyond = JobState(ref=ref, phase=Phase.FAILED, attempt=2)
    assert merged([beyond], (third,)) == (third,), "what is seen of the newest attempt counts"
