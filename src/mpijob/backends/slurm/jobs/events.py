"""The events of a job in order: from its journals, its owner's actions, and its end."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mpijob.backends.attempts import journal_events
from mpijob.backends.attempts.replay import Attempt
from mpijob.backends.slurm.jobs.job_files import JobFiles
from mpijob.errors import Severity
from mpijob.model import Event, JobState, Phase

_ACTS = {
    "cancelled": ("Cancelled", "cancelled by the user"),
    "suspended": ("Suspended", "suspended by the user"),
    "resumed": ("Resumed", "queued again"),
}


def of(files: JobFiles, state: JobState) -> tuple[Event, ...]:
    """Return the events of a job, numbered."""
    found = sorted(_all(files, state), key=lambda event: event.time)
    return tuple(msgspec.structs.replace(event, sequence=number) for number, event in enumerate(found, 1))


def _all(files: JobFiles, state: JobState) -> Iterator[Event]:
    number = f"as Slurm job {files.number}" if files.number else "to Slurm"
    yield Event(state.created, "Submitted", f"the job was submitted {number}")
    attempts = [files.attempt(number) for number in files.attempts()]
    for attempt in attempts:
        yield from journal_events.attempt_events(attempt, state, "Slurm")
    for act in files.acts:
        if act.verb in _ACTS and not (act.verb == "cancelled" and state.phase is Phase.CANCELLED):
            reason, text = _ACTS[act.verb]
            yield Event(act.time, reason, text, attempt=_at(attempts, act.time))
    if state.phase.final:
        severity = Severity.ERROR if state.phase is Phase.FAILED else Severity.NOTICE
        yield Event(
            state.finished or state.created, state.phase.value, state.message, severity, state.attempt
        )


def _at(attempts: list[Attempt], time: float) -> int:
    return max((attempt.number for attempt in attempts if attempt.started <= time), default=1)
