"""The events of an attempt inside a batch system, from its journals: the same milestones as on one machine."""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.backends.attempts.replay import Attempt
from mpijob.errors import Severity
from mpijob.formats.launch.allocation import Entry
from mpijob.model import Event, JobState
from mpijob.model.spec.quantity import ranks_on


def attempt_events(attempt: Attempt, state: JobState, system: str) -> Iterator[Event]:
    """Yield the events of an attempt; `system` is the name of the batch system that allocated its nodes."""
    number, workers, start = attempt.number, state.workers_wanted, attempt.started
    hosts = ", ".join(attempt.hosts) or "its nodes"
    restart = next(
        (entry.words.get("restart", "0") for entry in attempt.entries if entry.verb == "start"), "0"
    )
    # The journal has one time stamp for all of them; small differences keep their order when they are sorted.
    if number > 1 and restart != "0":
        message = f"{system} started the job again, restart {restart}"
        yield Event(start - 2e-3, "Requeued", message, attempt=number)
    yield Event(start - 1e-3, "GangScheduled", f"{system} allocated {hosts}", attempt=number)
    yield Event(start, "WorkersReady", f"Launcher discovered {workers} workers", attempt=number)
    if attempt.proved is not None:
        message = f"{state.world} ranks are in one MPI world"
        yield Event(attempt.proved, "WorldProved", message, attempt=number)
        yield Event(attempt.proved + 1e-6, "Running", ranks_on(state.world, workers), attempt=number)
    for entry in attempt.entries:
        yield from _entry_event(entry, number)


def _entry_event(entry: Entry, number: int) -> Iterator[Event]:
    words = entry.words
    match entry.verb:
        case "clock" if words.get("skew", "0") != "0":
            skew = f"the clock of {entry.host} is {words['skew']} s off; times use the launcher's clock"
            yield Event(entry.time, "ClockSkew", skew, Severity.WARNING, number)
        case "signal":
            sent = f"{entry.text} sent to every rank, before the deadline"
            yield Event(entry.time, "Signalled", sent, attempt=number)
        case "retry":
            retrying = f"attempt {number} failed; attempt {number + 1} starts in {words.get('in', '0')} s"
            yield Event(entry.time, "Retrying", retrying, attempt=number)
        case "kept":
            kept = f"the nodes are kept {words.get('seconds', '')} s for inspection (exec)"
            yield Event(entry.time, "Kept", kept, attempt=number)
