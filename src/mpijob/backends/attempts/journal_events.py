"""What happened in an attempt, as its journals tell it (`replay`): the same milestones as on one machine."""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.backends.attempts.replay import Attempt
from mpijob.errors import Severity
from mpijob.formats.launch.allocation import Entry
from mpijob.model import Event, JobState
from mpijob.model.spec.quantity import ranks_on


def attempt_events(attempt: Attempt, state: JobState, system: str) -> Iterator[Event]:
    """Yield the events of an attempt of a job; `system` is what gave it its nodes."""
    number, workers, start = attempt.number, state.workers_wanted, attempt.started
    hosts = ", ".join(attempt.hosts) or "its nodes"
    restart = next((one.words.get("restart", "0") for one in attempt.entries if one.verb == "start"), "0")
    if number > 1 and restart != "0":
        told = f"{system} started the job again, restart {restart}"
        yield Event(start - 2e-3, "Requeued", told, attempt=number)
    yield Event(start - 1e-3, "GangScheduled", f"{system} allocated {hosts}", attempt=number)
    yield Event(start, "WorkersReady", f"Launcher discovered {workers} workers", attempt=number)
    if attempt.proved is not None:
        yield Event(
            attempt.proved, "WorldProved", f"{state.world} ranks are in one MPI world", attempt=number
        )
        yield Event(attempt.proved + 1e-6, "Running", ranks_on(state.world, workers), attempt=number)
    for entry in attempt.entries:
        yield from _of_entry(entry, number)


def _of_entry(entry: Entry, number: int) -> Iterator[Event]:
    words = entry.words
    match entry.verb:
        case "clock" if words.get("skew", "0") != "0":
            skew = f"the clock of {entry.host} is {words['skew']} s off; times use the launcher's clock"
            yield Event(entry.time, "ClockSkew", skew, Severity.WARNING, number)
        case "signal":
            sent = f"{entry.text} sent to every rank, before the deadline"
            yield Event(entry.time, "Signalled", sent, attempt=number)
        case "retry":
            again = f"attempt {number} failed; attempt {number + 1} starts in {words.get('in', '0')} s"
            yield Event(entry.time, "Retrying", again, attempt=number)
        case "kept":
            kept = f"the nodes are kept {words.get('seconds', '')} s for inspection (exec)"
            yield Event(entry.time, "Kept", kept, attempt=number)
        case _:
            return
