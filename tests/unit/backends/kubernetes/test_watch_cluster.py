"""Every job of a cluster kept by watches alone: what is told, when, and what is kept of it.

The watches are scripted here; `tests/e2e/cluster/test_page_login.py` has the real ones.
"""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.cluster_objects import Cluster, condition, ended, running
from tests.unit.cluster_support import a_job

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import REFUSED, ApiError
from mpijob.backends.kubernetes.client.watch import Change
from mpijob.backends.kubernetes.status import watch_cluster
from mpijob.errors import BackendError, NotAllowed
from mpijob.model import JobState, Phase
from mpijob.model.status.job_change import Gone, Heard, Overseen

SERVED = frozenset({resources.TRAINJOB.api, resources.MPIJOB.api, resources.KUEUE_API})
JOBSET = "jobset.sigs.k8s.io/jobset-name"


class Script:
    """The watches of one cluster: a test says what they tell."""

    def __init__(self) -> None:
        self.sources: dict[str, queue.SimpleQueue[Any]] = {}
        self.trim: dict[str, Callable[[Any], Any]] = {}
        self.troubled: dict[str, Callable[[ApiError | None], None]] = {}
        self.version = 0

    def watch(self, api: object, path: str, *, labels: str, trim: Any, trouble: Any) -> Any:
        plural = path.rpartition("/")[2]
        self.sources[plural] = queue.SimpleQueue()
        self.trim[plural], self.troubled[plural] = trim, trouble
        return self._Watch(self.sources[plural])

    class _Watch:
        def __init__(self, news: queue.SimpleQueue[Any]) -> None:
            self._news = news

        def __iter__(self) -> Iterator[Change]:
            while (what := self._news.get()) is not None:
                if isinstance(what, ApiError):
                    raise what
                yield what

        def close(self) -> None:
            self._news.put(None)

    def tells(self, plural: str, document: Any, kind: str = "MODIFIED") -> None:
        self.version += 1
        whole = copy.deepcopy(document)
        whole["metadata"]["resourceVersion"] = str(self.version)
        self.sources[plural].put(Change(kind, self.trim[plural](whole)))  # type: ignore[arg-type]  # a kind of change

    def settles(self) -> None:
        for news in self.sources.values():
            news.put(Change("BOOKMARK", {}))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    script = Script()
    monkeypatch.setattr(watch_cluster, "watch", script.watch)
    monkeypatch.setattr(watch_cluster, "_PULSE_SECONDS", 60.0)
    return script


@pytest.fixture
def told(script: Script) -> Iterator[Iterator[Overseen]]:
    stream = watch_cluster._ClusterWatch(None, "", SERVED)  # type: ignore[arg-type]  # nothing is asked of it
    try:
        yield stream.states()
    finally:
        stream.close()


def until_heard(stream: Iterator[Overseen]) -> list[JobState | Gone]:
    found: list[JobState | Gone] = []
    for one in stream:
        if isinstance(one, Heard):
            return found
        found.append(one)
    raise AssertionError("it ended")


def until_told(stream: Iterator[Overseen]) -> list[JobState | Gone]:
    """Return what is told next; signs of life may come before it."""
    while not (found := until_heard(stream)):
        pass
    return found


def on_cluster(name: str, uid: str) -> Cluster:
    made = Cluster(a_job(name=name))
    made.job["metadata"] |= {"uid": uid, "namespace": "team-cv"}
    return made


def pods(made: Cluster) -> list[Any]:
    for pod in made.pods.values():
        pod["metadata"]["labels"][JOBSET] = made.job["metadata"]["name"]
    return [*made.pods.values()]


def at_work(script: Script) -> Cluster:
    """Return a job whose pods run, as the watches have told it."""
    made = on_cluster("bert", "one").workers(running()).launcher(running())
    script.tells("trainjobs", made.job, "ADDED")
    for pod in pods(made):
        script.tells("pods", pod, "ADDED")
    script.settles()
    return made


def test_jobs_are_told_with_their_pods_then_each_change_once(
    script: Script, told: Iterator[Overseen]
) -> None:
    made = at_work(script)
    (state,) = until_told(told)
    assert isinstance(state, JobState)
    assert (state.ref.name, state.phase, len(state.workers)) == ("bert", Phase.RUNNING, 2)
    script.tells("trainjobs", made.job)  # nothing new
    assert until_heard(told) == []
    made.condition("Complete", at=60)
    script.tells("trainjobs", made.job)
    (state,) = until_told(told)
    assert isinstance(state, JobState)
    assert state.phase is Phase.SUCCEEDED


def test_of_a_job_that_ended_nothing_is_kept_and_its_pods_may_go(script: Script) -> None:
    overseer = watch_cluster._ClusterWatch(None, "", SERVED)  # type: ignore[arg-type]  # nothing is asked of it
    stream = overseer.states()
    made = on_cluster("bert", "one").workers(ended(0, 50)).launcher(ended(0, 50)).condition("Complete", at=60)
    script.tells("trainjobs", made.job, "ADDED")
    for pod in pods(made):
        script.tells("pods", pod, "ADDED")
    script.settles()
    assert len(until_heard(stream)) == 1
    assert (overseer._pods, overseer._pods_of, overseer._place_of) == ({}, {}, {})
    assert [one.raw for one in overseer._objects.values()] == [b""]
    for pod in pods(made):
        script.tells("pods", pod, "DELETED")
    assert until_heard(stream) == []
    script.tells("trainjobs", made.job, "DELETED")
    (gone,) = until_told(stream)
    assert isinstance(gone, Gone)
    assert gone.ref.name == "bert"
    assert (overseer._objects, overseer._named, overseer._published) == ({}, {}, {})
    overseer.close()


def test_of_several_objects_of_a_name_the_newest_counts(script: Script, told: Iterator[Overseen]) -> None:
    first, second = on_cluster("bert", "one"), on_cluster("bert", "two")
    first.condition("Failed", at=30)
    second.job["metadata"] |= {"name": "bert-r2", "creationTimestamp": "2030-01-01T00:00:00Z"}
    script.tells("trainjobs", first.job, "ADDED")
    script.tells("trainjobs", second.job, "ADDED")
    script.settles()
    (state,) = until_told(told)
    assert isinstance(state, JobState)
    assert not state.phase.final
    script.tells("trainjobs", second.job, "DELETED")
    (state,) = until_told(told)
    assert isinstance(state, JobState)
    assert state.phase is Phase.FAILED


def test_a_workload_tells_where_a_job_waits(script: Script, told: Iterator[Overseen]) -> None:
    made = Cluster(a_job(name="bert", queue="main"))
    made.job["metadata"] |= {"uid": "one", "namespace": "team-cv"}
    made.job["spec"]["suspend"] = True
    script.tells("trainjobs", made.job, "ADDED")
    script.settles()
    until_heard(told)
    why = condition(
        "QuotaReserved", False, "Pending", "couldn't assign flavors to pod set node: 3 more needed", at=5
    )
    workload = {
        "metadata": {"name": "w", "namespace": "team-cv", "uid": "w-1", "creationTimestamp": "2030-01-01T00:00:00Z",
                     "ownerReferences": [{"uid": "one", "name": "bert"}]},
        "spec": {"queueName": "main"},
        "status": {"conditions": [why]},
    }  # fmt: skip
    script.tells("workloads", workload, "ADDED")
    (state,) = until_told(told)
    assert isinstance(state, JobState)
    assert (state.phase, "3 more needed" in state.waiting_for) == (Phase.QUEUED, True)


def test_an_outage_is_told_and_ends(script: Script, told: Iterator[Overseen]) -> None:
    script.settles()
    assert until_heard(told) == []
    script.troubled["trainjobs"](ApiError("nobody listens there", reason=REFUSED))
    heard = next(told)
    assert isinstance(heard, Heard)
    assert heard.trouble is not None
    script.troubled["trainjobs"](None)
    while next(told) != Heard(None):
        pass


def test_a_kind_that_may_not_be_seen_leaves_the_others(script: Script, told: Iterator[Overseen]) -> None:
    made = on_cluster("bert", "one")
    script.tells("trainjobs", made.job, "ADDED")
    script.sources["mpijobs"].put(ApiError("forbidden", status=403, reason="Forbidden"))
    script.settles()
    assert len(until_heard(told)) == 1


def test_nothing_that_may_be_seen_is_a_refusal(script: Script, told: Iterator[Overseen]) -> None:
    for plural in ("trainjobs", "mpijobs"):
        script.sources[plural].put(ApiError("forbidden", status=403, reason="Forbidden"))
    script.settles()
    with pytest.raises(NotAllowed):
        next(told)


def test_a_login_that_ended_ends_the_telling(script: Script, told: Iterator[Overseen]) -> None:
    script.settles()
    until_heard(told)
    script.sources["trainjobs"].put(ApiError("unauthorized", status=401, reason="Unauthorized"))
    with pytest.raises((NotAllowed, BackendError)):
        for _ in told:
            pass


@pytest.mark.req("FR-018")
def test_the_kinds_of_the_older_operator_are_told_too_and_may_share_a_name(script: Script) -> None:
    class Older:
        """A cluster that has two of the older kinds."""

        def get(self, path: str) -> dict[str, Any]:
            return {"resources": [{"name": "pytorchjobs"}, {"name": "tfjobs"}, {"name": "tfjobs/status"}]}

    overseer = watch_cluster._ClusterWatch(Older(), "", SERVED | {resources.OLDER_API})  # type: ignore[arg-type]  # asked for this alone
    about = {"name": "train", "namespace": "team-cv", "creationTimestamp": "2030-01-01T00:00:00Z"}
    for plural, uid, replicas in (
        ("pytorchjobs", "p", "pytorchReplicaSpecs"),
        ("tfjobs", "t", "tfReplicaSpecs"),
    ):
        spec = {replicas: {"Worker": {"replicas": 3, "template": {"spec": {"containers": [{"image": "a"}]}}}}}
        script.tells(plural, {"metadata": about | {"uid": uid}, "spec": spec}, "ADDED")
    script.settles()
    states = until_heard(overseer.states())
    assert sorted(one.kind for one in states if isinstance(one, JobState)) == ["PyTorchJob", "TFJob"]
    overseer.close()


def test_an_end_is_told_once_with_its_cause_though_the_engine_says_it_later(
    script: Script, told: Iterator[Overseen]
) -> None:
    made = at_work(script)
    until_told(told)
    made.worker(1, ended(137, 60, "OOMKilled"))
    script.tells("pods", pods(made)[1])
    (state,) = until_told(told)
    assert isinstance(state, JobState)
    assert (state.phase, state.reason) == (Phase.FAILED, "MemoryLimitExceeded")
    made.condition("Failed", reason="FailedJobs", at=61)
    script.tells("trainjobs", made.job)
    assert until_heard(told) == []
