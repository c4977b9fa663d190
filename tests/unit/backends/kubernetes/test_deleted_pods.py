"""The log of a job that is there and has no pod any more: a recorder has it, and who may read logs gets it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mpijob.backends.kubernetes.logs.follow_job import JobFollower
from mpijob.errors import NotAllowed
from mpijob.model import JobRef, LogLine, LogQuery, Phase, Role

REF = JobRef("team-a", "job", "u-1")
SAID = (LogLine(1, b"begun", Role.RANK, rank=0), LogLine(2, b"begun", Role.RANK, rank=1))


class Record:
    """As much of a past as is asked."""

    def __init__(self, *refs: JobRef) -> None:
        self.refs, self.read = refs, 0

    def state(self, ref: JobRef) -> object:
        return ref if ref in self.refs else None

    def logs(self, ref: JobRef, query: LogQuery) -> tuple[LogLine, ...]:
        self.read += 1
        return SAID if query.attempt in (None, 1) else ()


class Server:
    """An API server without pods, which lets somebody read logs or does not."""

    def __init__(self, *, allows: bool = True) -> None:
        self.allows, self.asked = allows, list[str]()

    def find(self, path: str) -> None:
        self.asked.append(path)
        if not self.allows:
            raise NotAllowed("you may not read pods/log")

    def now(self) -> float:
        return 100.0


def lines(
    record: Record | None, server: Server, *, phase: Phase = Phase.FAILED, follow: bool = False
) -> list[LogLine]:
    state = SimpleNamespace(phase=phase)
    eye = SimpleNamespace(
        find=lambda ref: SimpleNamespace(ref=REF),
        log_sources=lambda found: (),
        read=lambda ref: SimpleNamespace(state=state),
    )
    there = JobFollower(cast("Any", server), cast("Any", eye), None, cast("Any", lambda: record))
    return [*there.lines(JobRef("team-a", "job"), LogQuery(follow=follow))]


@pytest.mark.req("C-history")
@pytest.mark.parametrize("follow", [False, True])
def test_what_pods_said_that_are_gone_is_told_from_the_record(follow: bool) -> None:
    server = Server()
    assert lines(Record(REF), server, follow=follow) == [*SAID]
    assert server.asked == ["/api/v1/namespaces/team-a/pods/job/log"]


def test_a_job_that_rests_has_its_log_too() -> None:
    assert lines(Record(REF), Server(), phase=Phase.SUSPENDED) == [*SAID]


@pytest.mark.parametrize("record", [None, Record(), Record(JobRef("team-b", "job", "u-1"))])
def test_without_a_record_of_it_there_is_nothing_to_tell(record: Record | None) -> None:
    assert lines(record, Server()) == []
    assert record is None or record.read == 0


@pytest.mark.security
def test_who_may_not_read_logs_does_not_read_them_in_the_record_either() -> None:
    record = Record(REF)
    with pytest.raises(NotAllowed):
        lines(record, Server(allows=False))
    assert record.read == 0
