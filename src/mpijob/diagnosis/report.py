"""The diagnosis of a job or log: one value for every interface.

A summary, the findings with their places in the log, a timeline, a checklist, and numbered fixes for
`--with-fix`. Pure; `client/observe/diagnose` reads state and events, and the interfaces print it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mpijob.diagnosis.checklist import WORLD, Check, Mark, checklist
from mpijob.diagnosis.evidence import Evidence
from mpijob.errors import Finding, Place
from mpijob.model import Event, JobState, Phase
from mpijob.model.status.state import script_ended

_MILESTONES = {
    "Submitted": "submitted",
    "GangScheduled": "resources given",
    "WorkersReady": "workers ready",
    "Running": "MPI up",
    "Retrying": "tried again",
    "Suspended": "suspended",
    "Resumed": "resumed",
}
_ENDS = {Phase.SUCCEEDED: "succeeded", Phase.FAILED: "failed", Phase.CANCELLED: "cancelled"}


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One moment of a job's life; `place` is its position in the log."""

    time: float
    what: str
    text: str = ""
    place: Place | None = None


class Numbered(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fix, its number, and the cause that it fixes."""

    number: int
    code: str
    text: str
    patch: dict[str, Any] = {}
    command: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is in its phase, or the causes found in a log; the first cause is the first finding."""

    summary: str
    job: str = ""
    namespace: str = ""
    phase: str = ""
    attempt: int = 1
    findings: tuple[Finding, ...] = ()
    timeline: tuple[Step, ...] = ()
    checklist: tuple[Check, ...] = ()
    fixes: tuple[Numbered, ...] = ()

    @property
    def first(self) -> Finding | None:
        """The first cause."""
        return self.findings[0] if self.findings else None


def of_job(
    state: JobState, seen: Evidence, findings: tuple[Finding, ...], events: tuple[Event, ...]
) -> Diagnosis:
    """Return the diagnosis of a job."""
    return Diagnosis(
        summary=_summary(state, findings),
        job=state.ref.name,
        namespace=state.ref.namespace,
        phase=state.phase.value,
        attempt=state.attempt,
        findings=findings,
        timeline=tuple(_timeline(state, findings, events)),
        checklist=checklist(state, seen, findings, events),
        fixes=numbered(findings),
    )


def of_log(seen: Evidence, findings: tuple[Finding, ...]) -> Diagnosis:
    """Return the diagnosis of a log without a job."""
    first = findings[0] if findings else None
    if first is not None:
        summary = first.message
    elif seen.outcome_unseen:
        summary = "Nothing in this log looks like a failure; it does not show how the run ended."
    else:
        summary = "The run succeeded."
    return Diagnosis(
        summary=summary,
        findings=findings,
        timeline=tuple(_first_error(first)),
        checklist=tuple(check for check in checklist(None, seen, findings) if check.mark is not Mark.UNKNOWN),
        fixes=numbered(findings),
    )


def numbered(findings: Iterable[Finding]) -> tuple[Numbered, ...]:
    """Return the fixes of all findings in the order in which they are shown, numbered from 1."""
    fixes = [(finding.code, fix) for finding in findings for fix in finding.fixes]
    return tuple(
        Numbered(number, code, fix.text, fix.patch, fix.command)
        for number, (code, fix) in enumerate(fixes, start=1)
    )


def _summary(state: JobState, findings: tuple[Finding, ...]) -> str:
    cause = findings[0].message if findings else state.message
    total = max(state.workers_wanted, len(state.workers))
    if state.phase is Phase.FAILED:
        failed = sum(worker.phase is Phase.FAILED for worker in state.workers)
        return f"Failed - {failed}/{total} workers failed: {cause}" if failed else f"Failed: {cause}"
    if state.phase is Phase.SUCCEEDED:
        ended = script_ended(state.steps) if state.steps else "every rank ended with 0"
        return f"Succeeded, but: {cause}" if findings else f"Succeeded: {ended}."
    return f"{state.phase.value}: {cause or state.waiting_for or state.reason}"


def _timeline(state: JobState, findings: tuple[Finding, ...], events: tuple[Event, ...]) -> Iterator[Step]:
    no_world = any(finding.code in WORLD for finding in findings)
    steps = [_without_mpi(step) if no_world else step for step in _milestones(state, events)]
    steps += _first_error(findings[0] if findings else None)
    if state.finished is not None:
        is_known = any(state.message == finding.message for finding in findings)
        end = _ENDS.get(state.phase, state.phase.value)
        steps.append(Step(state.finished, end, "" if is_known else state.message))
    yield from sorted(steps, key=lambda step: step.time)


def _milestones(state: JobState, events: tuple[Event, ...]) -> Iterator[Step]:
    milestones = [event for event in events if event.reason in _MILESTONES]
    yield from (Step(event.time, _MILESTONES[event.reason], event.message) for event in milestones)
    seen = {_MILESTONES[event.reason] for event in milestones}
    known = (
        ("submitted", state.created or None),
        ("resources given", state.started),
        ("MPI up", state.running),
    )
    yield from (Step(time, what) for what, time in known if time is not None and what not in seen)


def _without_mpi(step: Step) -> Step:
    # If the ranks formed no MPI world, MPI did not start.
    return Step(step.time, "ranks started") if step.what == _MILESTONES["Running"] else step


def _first_error(finding: Finding | None) -> Iterator[Step]:
    place = finding.place if finding is not None else None
    if finding is not None and place is not None and place.time:
        yield Step(place.time, "first error", finding.evidence[0] if finding.evidence else "", place)
