"""The controller's own warnings: memory by one request for all jobs, silent ranks by their lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.cluster_objects import BEGIN, Cluster, at_work, stamp

from mpijob.backends.kubernetes.client.api import Listing
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.controller import early_warnings
from mpijob.backends.kubernetes.controller.early_warnings import EarlyWarnings
from mpijob.backends.kubernetes.metrics import pod_usage
from mpijob.backends.kubernetes.status import job_warnings
from mpijob.model import JobRef, JobState, LogLine, Phase, RankState, Role, WorkerState

pytestmark = pytest.mark.req("PMV-013")
GIB = 1 << 30
QUIET = 60.0
REF = JobRef("team", "job", "u-1")


class Metrics:
    """An API server whose clock is set, and that measures what it is told to."""

    def __init__(self, cluster: Cluster) -> None:
        self.clock, self.used, self.asked = 0.0, dict[int, int](), list[str]()
        self._names = [name for name, pod in cluster.pods.items() if "launcher" not in name]
        self._pods = cluster.pods

    def now(self) -> float:
        return BEGIN + self.clock

    def list(self, path: str, *, labels: str) -> Listing:
        self.asked.append(path)
        items = [
            {
                "metadata": self._pods[name]["metadata"],
                "timestamp": stamp(self.clock),
                "containers": [{"usage": {"cpu": "1", "memory": str(self.used[number])}}],
            }
            for number, name in enumerate(self._names)
            if number in self.used and labels in self._pods[name]["metadata"]["labels"]
        ]
        return Listing(items, "1")


class Scene:
    """A running job of two workers, whose memory and lines tests set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, served: frozenset[str]) -> None:
        self.cluster = at_work()
        self.api, self.lines = Metrics(self.cluster), list[LogLine]()
        self.state = JobState(
            ref=REF, phase=Phase.RUNNING, running=float(BEGIN), attempt=1,
            workers=tuple(WorkerState(i, f"w{i}", Phase.RUNNING, memory_limit_bytes=GIB) for i in range(2)),
            ranks=tuple(RankState(rank, rank) for rank in range(2)),
        )  # fmt: skip
        reader: Any = SimpleNamespace(served=served, log_sources=lambda found: ())
        self.watch = EarlyWarnings(self.api, reader, "", QUIET)  # type: ignore[arg-type]  # it asks no more
        monkeypatch.setattr(early_warnings, "_MEASURE_SECONDS", 0.0)
        monkeypatch.setattr(job_warnings, "last_lines", lambda *_: self.said())

    def said(self) -> tuple[LogLine, ...]:
        return tuple(self.lines)

    def at(self, seconds: float) -> list[str]:
        """Return the codes that a look at this time finds."""
        self.api.clock = seconds
        pods = list(self.cluster.pods.values())
        look: Any = SimpleNamespace(state=self.state, found=None, seen=SimpleNamespace(pods=pods))
        self.found = self.watch.of(look)
        return [one.code for one in self.found]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch, frozenset({pod_usage.METRICS_API}))


def test_memory_that_is_nearly_used_up_is_told_of_the_worker(scene: Scene) -> None:
    assert scene.at(0) == []
    scene.api.used = {0: GIB // 4, 1: GIB - 1000}
    assert scene.watch.measure() == {REF}
    assert scene.at(40) == ["MEMORY_NEAR_LIMIT"]
    assert [one.worker for one in scene.found] == [1]


def test_memory_that_grows_steadily_is_told_before_it_is_used_up(scene: Scene) -> None:
    scene.at(0)
    near = []
    for step in range(10):
        scene.api.clock, scene.api.used = 15.0 * step, {0: (300 + 50 * step) << 20, 1: 1 << 20}
        near.append(bool(scene.watch.measure()))
    assert near == [False] * 5 + [True] * 5  # half of the limit is 512 MiB
    assert scene.at(150) == ["MEMORY_NEAR_LIMIT"]


def test_all_jobs_are_measured_by_one_request(scene: Scene) -> None:
    assert scene.watch.measure() == set()
    assert scene.api.asked == []  # nobody runs
    scene.at(0)
    scene.watch.measure()
    assert scene.api.asked == ["/apis/metrics.k8s.io/v1beta1/pods"]


def test_a_cluster_that_measures_nothing_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, frozenset())
    scene.at(0)
    assert scene.watch.measure() == set()
    assert scene.api.asked == []


def test_a_silent_rank_is_told_and_lines_are_read_at_most_twice_in_the_quiet_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for second in range(0, 400, 5):
        for rank in (0, 1):
            if rank == 0 or second < 100:
                moment = int((BEGIN + second) * 1e9)
                scene.lines.append(LogLine(moment, b"at work", Role.RANK, rank=rank, attempt=1))
    read: list[int] = []

    def counted(*_: object) -> tuple[LogLine, ...]:
        read.append(1)
        return scene.said()

    monkeypatch.setattr(job_warnings, "last_lines", counted)
    assert scene.at(10) == []
    assert read == []  # it has just begun
    assert [scene.at(400 + seconds) for seconds in range(5)] == [["RANK_SILENT"]] * 5
    assert read == [1]


def test_an_attempt_does_not_take_over_what_was_measured_of_the_one_before(scene: Scene) -> None:
    scene.at(0)
    scene.api.used = {0: GIB - 1000}
    scene.watch.measure()
    scene.state = msgspec.structs.replace(scene.state, attempt=2, running=BEGIN + 30.0)
    assert scene.at(100) == []


def test_how_often_it_was_tried_is_left_to_its_events_and_a_kubelet_that_is_silent_ends_no_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> tuple[LogLine, ...]:
        raise ApiError("kubelet", status=500, reason="InternalError")

    monkeypatch.setattr(job_warnings, "last_lines", refused)
    scene.state = msgspec.structs.replace(scene.state, attempt=2, attempts_allowed=3)
    assert scene.at(100) == []


def test_a_job_that_ended_is_forgotten_and_zero_judges_nothing(scene: Scene) -> None:
    scene.at(0)
    scene.api.used = {0: GIB - 1000}
    scene.watch.measure()
    scene.watch.quiet_seconds = 0.0
    assert scene.at(100) == []
    assert scene.watch.measure() == set()
    scene.watch.quiet_seconds = QUIET
    scene.state = msgspec.structs.replace(scene.state, phase=Phase.SUCCEEDED)
    assert scene.at(200) == []
    assert scene.watch.measure() == set()
