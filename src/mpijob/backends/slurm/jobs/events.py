"""What happened to a job, in order: from its journals, from what its owner asked for, and from how it ended."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mpijob.backends.attempts.replay import Attempt
from mpijob.backends.slurm.jobs.job_files import JobFiles
from mpijob.errors import Severity
from mpijob.model import Event, JobState, Phase
from mpijob.model.spec.quantity import ranks_on

_ACTS = {
    "cancelled": ("Cancelled", "cancelled by the user"),
    "suspended": ("Suspended", "suspended by the user"),
    "resumed": ("Resumed", "queued again"),
}


def of(files: JobFiles, state: JobState) -> tuple[Event, ...]:
    """Return the events of a job, numbered."""
    found = sorted(_all(files, state), key=lambda one: one.time)
    return tuple(msgspec.structs.replace(one, sequence=place) for place, one in enumerate(found, 1))


def _all(files: JobFiles, state: JobState) -> Iterator[Event]:
    number = f"as Slurm job {files.number}" if files.number else "to Slurm"
    yield Event(state.created, "Submitted", f"the job was submitted {number}")
    attempts = [files.attempt(number) for number in files.attempts()]
    for attempt in attempts:
        yield from _of_attempt(attempt, state)
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
    return max((one.number for one in attempts if one.started <= time), default=1)


def _of_attempt(attempt: Attempt, state: JobState) -> Iterator[Event]:
    number, workers = attempt.number, state.workers_wanted
    hosts = ", ".join(attempt.hosts)
    restarted = next((one.words.get("restart", "0") for one in attempt.entries if one.verb == "start"), "0")
    if number > 1 and restarted != "0":
        yield Event(
            attempt.started - 2e-3,
            "Requeued",
            f"Slurm started the job again, restart {restarted}",
            attempt=number,
        )
    yield Event(
        attempt.started - 1e-3, "GangScheduled", f"Slurm gave the job {hosts or 'its nodes'}", attempt=number
    )
    text = f"Launcher discovered {workers} workers"
    yield Event(attempt.started, "WorkersReady", text, attempt=number)
    if attempt.proved is not None:
        yield Event(attempt.proved, "WorldProved", f"{state.world} ranks are one world", attempt=number)
        yield Event(attempt.proved + 1e-6, "Running", ranks_on(state.world, workers), attempt=number)
    for one in attempt.entries:
        match one.verb:
            case "clock" if one.words.get("skew", "0") != "0":
                skew = f"the clock of {one.host} is {one.words['skew']} s off; times use the launcher's clock"
                yield Event(one.time, "ClockSkew", skew, Severity.WARNING, number)
            case "signal":
                yield Event(
                    one.time,
                    "Signalled",
                    f"{one.text} sent to every rank, before the deadline",
                    attempt=number,
                )
            case "retry":
                again = (
                    f"attempt {number} failed; attempt {number + 1} starts in {one.words.get('in', '0')} s"
                )
                yield Event(one.time, "Retrying", again, attempt=number)
            case "kept":
                kept = f"the nodes stay {one.words.get('seconds', '')} s for inspection (exec)"
                yield Event(one.time, "Kept", kept, attempt=number)
            case _:
                continue
