"""What is worrying about a cluster job, from the metrics API and the pods' lines alone."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from tests.unit.backends.kubernetes.test_log_follower import Broken
from tests.unit.kube_store import Store

from mpijob import JobState, Phase
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.logs import pod_logs
from mpijob.backends.kubernetes.logs.pod_logs import PodLogSource
from mpijob.backends.kubernetes.status import job_warnings
from mpijob.model import Family, JobRef, LogLine, LogQuery, Mark, RankState, Role, Sample, WorkerState

START, NOW = 1_700_000_000.0, 1_700_000_600.0
MIB = 1 << 20
pytestmark = pytest.mark.req("PMV-013")


def a_state(**fields: Any) -> JobState:
    workers = tuple(WorkerState(i, f"w{i}", Phase.RUNNING, memory_limit_bytes=1024 * MIB) for i in range(2))
    ranks = tuple(RankState(rank, rank // 2) for rank in range(4))
    return JobState(
        ref=JobRef("x", "job", "u"),
        phase=Phase.RUNNING,
        workers=workers,
        ranks=ranks,
        running=START,
        **fields,
    )


def lines(rank: int, until: float = 599.0, attempt: int = 1) -> Iterable[LogLine]:
    for second in range(1, int(until), 3):
        said = b"step %d" % second
        yield LogLine(int((START + second) * 1e9), said, Role.RANK, rank=rank, attempt=attempt)


def judged(samples: list[Sample], said: Iterable[LogLine] = (), **fields: Any) -> list[str]:
    found = job_warnings.check(a_state(**fields), samples, tuple(said), 120.0, NOW)
    return [finding.code for finding in found]


def test_one_measure_is_enough_for_memory_that_is_nearly_used_up() -> None:
    assert judged([Sample(NOW - 20, 1, 1.0, 1000 * MIB)]) == ["MEMORY_NEAR_LIMIT"]


def test_measures_that_a_watch_has_collected_show_a_trend() -> None:
    grows = [Sample(NOW - 300 + 15 * n, 1, 1.0, (400 + 15 * n) * MIB) for n in range(21)]
    assert judged(grows) == ["MEMORY_NEAR_LIMIT"]
    assert judged(grows[:3]) == []


def test_a_silent_rank_is_seen_in_the_lines_also_when_clocks_differ() -> None:
    said = [line for rank in range(4) for line in lines(rank, until=200.0 if rank == 2 else 599.0)]
    assert judged([], said) == ["RANK_SILENT", "RANK_BEHIND"]
    ahead = [msgspec.structs.replace(line, time=line.time + 300 * 10**9) for line in said]
    assert "RANK_SILENT" in judged([], ahead)


def test_idle_workers_are_told_only_after_they_were_measured_long_enough() -> None:
    idle = [Sample(NOW - 300 + 15 * n, worker, 0.0, 100 * MIB) for n in range(21) for worker in (0, 1)]
    said = list(lines(0, until=100.0))
    assert judged(idle, said) == ["ALL_IDLE"]
    assert judged(idle[-2:], said) == ["JOB_SILENT"]


def test_lines_of_earlier_attempts_do_not_count_and_a_retry_is_told() -> None:
    said = [line for rank in range(4) for line in lines(rank, until=200.0 if rank == 2 else 599.0)]
    assert judged([], said, attempt=2, attempts_allowed=3) == ["RESTARTED"]


def test_nothing_is_judged_where_warnings_are_switched_off() -> None:
    full = [Sample(NOW - 20, 1, 1.0, 1020 * MIB)]
    assert job_warnings.check(a_state(), full, (), 0.0, NOW) == ()


class Unreachable(Store):
    """An API server that cannot reach the node of a pod."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self._status = status

    def lines(self, path: str, **query: Any) -> Any:
        raise ApiError("no preferred addresses found; known addresses: []", status=self._status)


def test_a_node_that_does_not_answer_is_told_in_the_log_and_worries_nobody_who_only_looks() -> None:
    voice = PodLogSource(
        "team", "train-launcher-0-0-abcde", "node", Role.LAUNCHER, None, 1, Family.OPENMPI, True
    )
    (line,) = pod_logs.stored(Unreachable(500), (voice,), LogQuery())
    assert (line.role, line.marks) == (Role.LAUNCHER, (Mark.GAP,))
    assert b"the log of pod train-launcher-0-0-abcde cannot be read: no preferred" in line.text
    assert job_warnings.last_lines(Unreachable(500), (voice,), NOW) == ()
    with pytest.raises(ApiError):
        job_warnings.last_lines(Unreachable(403), (voice,), NOW)


class Meeting(Store):
    """An API server whose pods answer only when so many of them are asked at the same time."""

    def __init__(self, many: int) -> None:
        super().__init__()
        self.read: list[str] = []
        self.since: set[str] = set()
        self._all = threading.Barrier(many, timeout=60)

    def lines(self, path: str, **query: Any) -> Any:
        self.read.append(path)
        self.since.add(query.get("sinceTime", ""))
        self._all.wait()
        return Broken([b"2026-01-01T00:00:00Z sshd listens\n"])


def a_voice(pod: str, role: Role) -> PodLogSource:
    return PodLogSource(
        "team", pod, "node", role, 0 if role is Role.WORKER else None, 1, Family.OPENMPI, True
    )


@pytest.mark.req("NFR-005")
def test_the_logs_of_several_pods_are_asked_for_at_once() -> None:
    voices = [a_voice(f"worker-{n}", Role.WORKER) for n in range(8)]
    assert len([*pod_logs.stored(Meeting(8), voices, LogQuery())]) == 8


def test_who_looks_for_worries_reads_what_the_program_said_and_no_worker() -> None:
    api = Meeting(1)
    job_warnings.last_lines(api, (a_voice("launcher", Role.LAUNCHER), a_voice("worker-0", Role.WORKER)), NOW)
    assert api.read == [a_voice("launcher", Role.LAUNCHER).path]
    assert api.since == {"2023-11-14T21:53:20.000000000Z"}  # what was said before is not sent


def test_whoever_reads_a_log_reads_it_from_its_beginning() -> None:
    api = Meeting(1)
    assert len([*pod_logs.stored(api, (a_voice("launcher", Role.LAUNCHER),), LogQuery(since=1.0))]) == 1
    assert api.since == {""}
