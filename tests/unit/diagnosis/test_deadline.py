"""A deadline on an engine that does not see ranks: the log, once it is at hand, tells whether they had gone silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from tests.unit.failures import a_job

from mpijob.backends.protocol import Backend
from mpijob.client.observe import diagnose
from mpijob.diagnosis.report import Diagnosis
from mpijob.errors import Finding, NotAllowed
from mpijob.model import Event, JobRef, JobState, LogLine, LogQuery, Mark, MPIJob, Phase, Role, Sample
from mpijob.settings import Settings

SILENT = "no rank had written output in the last"
LIMIT = Finding("DEADLINE_EXCEEDED", "The job ran past its deadline of 60 s.")
STATE = JobState(
    ref=JobRef("team-a", "job"),
    phase=Phase.FAILED,
    reason="DeadlineExceeded",
    engine="kubeflow-trainer",
    created=90.0,
    started=100.0,
    running=102.0,
    finished=160.0,
    workers_wanted=2,
    world=4,
    findings=(LIMIT,),
)


def line(seconds: float, rank: int | None = 0, *marks: Mark) -> LogLine:
    role = Role.LAUNCHER if rank is None else Role.RANK
    return LogLine(time=int(seconds * 1e9), text=b"step", role=role, rank=rank, marks=marks)


class Engine:
    """As much of an engine as `why` asks of a job that has ended."""

    def __init__(self, state: JobState, lines: tuple[LogLine, ...], *, readable: bool = True) -> None:
        self.state, self.lines, self.readable, self.read = state, lines, readable, 0

    def get(self, ref: JobRef) -> JobState:
        return self.state

    def spec(self, ref: JobRef) -> MPIJob:
        return msgspec.structs.replace(a_job(), deadline_seconds=60.0)

    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        return ()

    def events(self, ref: JobRef) -> Iterator[Event]:
        yield from cast("tuple[Event, ...]", ())

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        self.read += 1
        if not self.readable:
            raise NotAllowed("you may not read pods/log")
        yield from self.lines


def why(*lines: LogLine, **fields: Any) -> tuple[Diagnosis, Engine]:
    engine = Engine(msgspec.structs.replace(STATE, **fields), lines)
    return diagnose.of_job(STATE.ref, cast("Backend", engine), Settings()), engine


def test_ranks_that_had_gone_silent_may_have_hung_and_that_is_told_with_what_to_do() -> None:
    told, _ = why(line(110.0), line(115.0, 3))
    (first,) = told.findings
    assert "60 s" in first.message
    assert SILENT in first.message
    assert "waited for each other (hang)" in first.message
    assert "mpijob stacks" in first.fixes[0].text


@pytest.mark.parametrize(
    "lines",
    [
        (line(110.0), line(155.0, 3)),
        (),
        (line(110.0, None),),
        (line(110.0), line(130.0, None, Mark.GAP)),
        (line(160.5),),
        (line(110.0), line(160.5, 3, Mark.OPEN)),
    ],
    ids=[
        "they spoke",
        "no log",
        "nothing of ranks",
        "lines are missing",
        "only as they were ended",
        "in a line without an end",
    ],
)
def test_where_they_spoke_or_it_is_not_known_the_deadline_is_the_cause(lines: tuple[LogLine, ...]) -> None:
    told, engine = why(*lines)
    assert (told.findings, engine.read) == ((LIMIT,), 1)


def test_a_log_that_may_not_be_read_takes_nothing_from_what_is_known() -> None:
    engine = Engine(STATE, (line(110.0),), readable=False)
    told = diagnose.of_job(STATE.ref, cast("Backend", engine), Settings())
    assert (told.findings, engine.read) == ((LIMIT,), 1)


def test_lines_missing_of_a_worker_or_after_the_deadline_are_none_of_the_ranks() -> None:
    of_worker = LogLine(time=int(112e9), text=b"gap", role=Role.WORKER, worker=0, marks=(Mark.GAP,))
    told, _ = why(of_worker, line(110.0), line(160.6, None, Mark.GAP))
    assert SILENT in told.findings[0].message


def test_what_ranks_say_as_they_are_ended_does_not_count() -> None:
    told, _ = why(line(110.0), line(160.4), line(160.6, 2))
    assert SILENT in told.findings[0].message


@pytest.mark.parametrize(
    "fields",
    [
        {"engine": "local"},
        {"findings": (Finding("NODE_LOST", "Node a is gone."), LIMIT)},
        {"findings": (Finding("OOM_KILLED", "Worker 1 was killed."),)},
    ],
    ids=["an engine that sees ranks", "with another cause", "another end"],
)
def test_what_an_engine_knows_better_stands(fields: dict[str, Any]) -> None:
    told, engine = why(line(110.0), **fields)
    assert (told.findings, engine.read) == (fields.get("findings", (LIMIT,)), 0)
