"""When Kueue will admit each job that waits: its Workloads and quotas as a queue that can be played out.

The play itself is in `observation/state/queue_wait`; what is read, and by whom, is the business of `collect`. Several
flavors count as one, and what other ClusterQueues of a cohort will ask for is not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mpijob.backends.kubernetes.preflight import kueue_facts
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status.kueue_usage import WorkloadUsage
from mpijob.model.status.forecast import Forecast
from mpijob.observation.state import queue_wait

NEW = "new"  # the owner of a job that is not there yet
LEAST_ENDED = 3  # fewer jobs of other programs tell nothing
_STRICT = "StrictFIFO"
_NO_QUOTA = "the queue's quota cannot be read, so the start time is unknown"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read of one ClusterQueue: its object, its Workloads, and more about the jobs that own them.

    `places` are Kueue's own positions in the ClusterQueue, from 0, by the owners' uids. `deadlines` and `history` (how
    long the same program ran before) are by the owners' uids, too.
    """

    name: str
    queues: Sequence[Document] | None
    entries: Sequence[WorkloadUsage]
    places: Mapping[str, int] = {}
    deadlines: Mapping[str, float] = {}
    history: Mapping[str, tuple[float, ...]] = {}


def forecasts(seen: Seen, now: float, extra: WorkloadUsage | None = None) -> dict[str, Forecast]:
    """Return when each job starts that waits in a ClusterQueue, by its object's uid; `extra` is one that might come.

    A job that Kueue can never admit as it is has none.
    """
    waiting = sorted(
        (one for one in seen.entries if waits(one)),
        key=lambda one: (seen.places.get(one.owner, 1 << 30), -one.priority, one.since),
    )
    if extra is not None:
        later = (at for at, one in enumerate(waiting) if one.priority < extra.priority)
        waiting.insert(next(later, len(waiting)), extra)
    queue = _queue(seen, waiting, now)
    if queue is None:
        return {
            one.owner: Forecast(_place(seen, one, at), basis=_NO_QUOTA) for at, one in enumerate(waiting, 1)
        }
    found = queue_wait.forecasts(queue)
    return {one.owner: _hidden(seen, one, found[at], at + 1) for at, one in enumerate(waiting)}


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
                elapsed_seconds=max(0.0, now - (one.admitted or now)),
                holds=one.amounts,
                durations=_durations(seen, one, ended),
                deadline_seconds=seen.deadlines.get(one.owner),
            )
            for one in seen.entries
            if one.admitted is not None and one.finished is None
        ),
        waiting=tuple(
            queue_wait.Waiting(
                needs=one.amounts,
                durations=_durations(seen, one, ended),
                deadline_seconds=seen.deadlines.get(one.owner),
            )
            for one in waiting
        ),
        usual=tuple(usual) if len(usual) >= LEAST_ENDED else (),
        strict=_strategy(seen) == _STRICT,
    )


def _free(seen: Seen, waiting: Sequence[WorkloadUsage]) -> dict[str, float] | None:
    """Return what is free by the queue's quota, else by what Kueue found missing for the first that waits."""
    shares = kueue_facts.shares(seen.name, seen.queues)
    if shares is not None:
        free: dict[str, float] = {}
        for share in shares:
            free[share.resource] = free.get(share.resource, 0.0) + share.free
        return free
    first = next((one for one in waiting if one.short), None)
    if first is None:
        return None
    return {name: max(0.0, first.amounts.get(name, 0.0) - short) for name, short in first.short.items()}


def _ended(seen: Seen) -> dict[str, tuple[float, ...]]:
    """Return how long finished Workloads held their quota, by program."""
    found: dict[str, list[float]] = {}
    for one in seen.entries:
        if one.admitted is not None and one.finished is not None and one.finished >= one.admitted:
            found.setdefault(one.program, []).append(one.finished - one.admitted)
    return {program: tuple(durations) for program, durations in found.items()}


def _durations(seen: Seen, one: WorkloadUsage, ended: Mapping[str, tuple[float, ...]]) -> tuple[float, ...]:
    here = ended.get(one.program, ()) if one.program else ()
    return here or seen.history.get(one.owner, ())


def _strategy(seen: Seen) -> str:
    mine = (one for one in seen.queues or () if one["metadata"]["name"] == seen.name)
    return str(next(((one.get("spec") or {}).get("queueingStrategy") for one in mine), "") or "")


def waits(one: WorkloadUsage) -> bool:
    """Return whether a Workload waits and could be admitted as it is."""
    return one.admitted is None and one.finished is None and not one.stuck


def _place(seen: Seen, one: WorkloadUsage, at: int) -> int:
    return seen.places[one.owner] + 1 if one.owner in seen.places else at


def _hidden(seen: Seen, one: WorkloadUsage, found: Forecast, at: int) -> Forecast:
    """Return the forecast with Kueue's own place; where it is further back than those seen here tell, no number."""
    place = _place(seen, one, at)
    unseen = place - at
    if unseen <= 0:
        return msgspec.structs.replace(found, position=place)
    many = "1 job" if unseen == 1 else f"{unseen} jobs"
    basis = f"{many} before it cannot be seen, so the start time is unknown"
    return Forecast(place, basis=basis)
