"""When Kueue will admit each waiting job: its Workloads and quotas as a queue that is simulated.

The simulation is in `observation/state/queue_wait`; `collect` reads the objects. Several flavors count as
one, and future jobs of other ClusterQueues of a cohort are not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mpijob.backends.kubernetes.preflight import kueue_facts
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status.kueue_usage import WorkloadUsage
from mpijob.model.status.forecast import Forecast
from mpijob.observation.state import queue_wait

# The owner of a job that does not exist yet.
NEW = "new"
# Fewer ended jobs of other programs are no basis for an estimate.
LEAST_ENDED = 3
_STRICT = "StrictFIFO"
_NO_QUOTA = "the queue's quota cannot be read, so the start time is unknown"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read of a ClusterQueue: its object, its Workloads, and facts about the jobs that own
    them.

    `places` are Kueue's own positions from 0, `deadlines` and `history` (how long the same program ran
    before) are in seconds; all by the uids of the jobs.
    """

    name: str
    queues: Sequence[Document] | None
    entries: Sequence[WorkloadUsage]
    places: Mapping[str, int] = {}
    deadlines: Mapping[str, float] = {}
    history: Mapping[str, tuple[float, ...]] = {}


def forecasts(seen: Seen, now: float, extra: WorkloadUsage | None = None) -> dict[str, Forecast]:
    """Return the start times of the waiting jobs by their uids; `extra` is a job that may be submitted.

    A job that Kueue can never admit as it is has none.
    """
    waiting = sorted(
        (entry for entry in seen.entries if waits(entry)),
        # Kueue's own positions, then its rule: priority, then age.
        key=lambda entry: (seen.places.get(entry.owner, 1 << 30), -entry.priority, entry.since),
    )
    if extra is not None:
        later = (at for at, entry in enumerate(waiting) if entry.priority < extra.priority)
        waiting.insert(next(later, len(waiting)), extra)
    queue = _queue(seen, waiting, now)
    if queue is None:
        return {
            entry.owner: Forecast(_place(seen, entry, at), basis=_NO_QUOTA)
            for at, entry in enumerate(waiting, 1)
        }
    found = queue_wait.forecasts(queue)
    return {entry.owner: _at_position(seen, entry, found[at], at + 1) for at, entry in enumerate(waiting)}


def _queue(seen: Seen, waiting: Sequence[WorkloadUsage], now: float) -> queue_wait.Queue | None:
    free = _free(seen, waiting)
    if free is None:
        return None
    ended = _ended(seen)
    usual = [duration for durations in ended.values() for duration in durations]
    return queue_wait.Queue(
        free=free,
        running=tuple(
            queue_wait.Running(
                elapsed_seconds=max(0.0, now - (entry.admitted or now)),
                holds=entry.amounts,
                durations=_durations(seen, entry, ended),
                deadline_seconds=seen.deadlines.get(entry.owner),
            )
            for entry in seen.entries
            if entry.admitted is not None and entry.finished is None
        ),
        waiting=tuple(
            queue_wait.Waiting(
                needs=entry.amounts,
                durations=_durations(seen, entry, ended),
                deadline_seconds=seen.deadlines.get(entry.owner),
            )
            for entry in waiting
        ),
        usual=tuple(usual) if len(usual) >= LEAST_ENDED else (),
        strict=_strategy(seen) == _STRICT,
    )


def _free(seen: Seen, waiting: Sequence[WorkloadUsage]) -> dict[str, float] | None:
    """Return what is free by the queue's quota, else by what Kueue reports as missing for the first waiting job."""
    shares = kueue_facts.shares(seen.name, seen.queues)
    if shares is not None:
        free: dict[str, float] = {}
        for share in shares:
            free[share.resource] = free.get(share.resource, 0.0) + share.free
        return free
    first = next((entry for entry in waiting if entry.short), None)
    if first is None:
        return None
    return {name: max(0.0, first.amounts.get(name, 0.0) - short) for name, short in first.short.items()}


def _ended(seen: Seen) -> dict[str, tuple[float, ...]]:
    """Return how long finished Workloads held their quota, by program."""
    found: dict[str, list[float]] = {}
    for entry in seen.entries:
        if entry.admitted is not None and entry.finished is not None and entry.finished >= entry.admitted:
            found.setdefault(entry.program, []).append(entry.finished - entry.admitted)
    return {program: tuple(durations) for program, durations in found.items()}


def _durations(seen: Seen, entry: WorkloadUsage, ended: Mapping[str, tuple[float, ...]]) -> tuple[float, ...]:
    here = ended.get(entry.program, ()) if entry.program else ()
    return here or seen.history.get(entry.owner, ())


def _strategy(seen: Seen) -> str:
    mine = (entry for entry in seen.queues or () if entry["metadata"]["name"] == seen.name)
    return str(next(((entry.get("spec") or {}).get("queueingStrategy") for entry in mine), "") or "")


def waits(entry: WorkloadUsage) -> bool:
    """Return whether a Workload waits and could be admitted as it is."""
    return entry.admitted is None and entry.finished is None and not entry.stuck


def _place(seen: Seen, entry: WorkloadUsage, at: int) -> int:
    return seen.places[entry.owner] + 1 if entry.owner in seen.places else at


def _at_position(seen: Seen, entry: WorkloadUsage, found: Forecast, at: int) -> Forecast:
    """Return the forecast at Kueue's own position, without a time if jobs before it cannot be read."""
    place = _place(seen, entry, at)
    hidden = place - at
    if hidden <= 0:
        return msgspec.structs.replace(found, position=place)
    many = "1 job" if hidden == 1 else f"{hidden} jobs"
    basis = f"{many} before it cannot be seen, so the start time is unknown"
    return Forecast(place, basis=basis)
