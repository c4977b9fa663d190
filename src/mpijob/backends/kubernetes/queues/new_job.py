"""Where a job would stand in its queue that is not submitted yet, and when it would start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mpijob.backends.kubernetes.queues import forecasts
from mpijob.formats.status.kueue_usage import WorkloadUsage
from mpijob.model import Facts, MPIJob
from mpijob.model.status.forecast import Forecast


class Placed(NamedTuple):
    """When it would start, and what those before it ask for, by resource; `ended` jobs were there to learn from."""

    forecast: Forecast
    ahead: dict[str, float]
    ended: int


def placed(
    queues: Sequence[forecasts.Seen], job: MPIJob, facts: Facts, classes: Mapping[str, int], now: float
) -> Placed | None:
    """Return a job's place in its queue, by the values of Kueue's priority classes; None for a job without one."""
    queue = facts.cluster.queue if facts.cluster is not None else None
    seen = next((one for one in queues if queue is not None and one.name == queue.behind), None)
    if queue is None or seen is None:
        return None
    mine = classes.get(str(job.priority), 0) if isinstance(job.priority, str) else job.priority
    # Kueue orders by priority, then by age: a new job is behind all of its own priority.
    ahead = [one for one in seen.entries if forecasts.waits(one) and one.priority >= mine]
    wanted = WorkloadUsage(
        queue=queue.name,
        namespace=job.namespace,
        owner=forecasts.NEW,
        priority=mine,
        amounts=_wanted(facts),
    )
    forecast = forecasts.forecasts(seen, now, wanted)[forecasts.NEW]
    return Placed(forecast, total(ahead), sum(one.finished is not None for one in seen.entries))


def total(entries: Sequence[WorkloadUsage]) -> dict[str, float]:
    """Return what several ask for together."""
    found: dict[str, float] = {}
    for one in entries:
        for name, amount in one.amounts.items():
            found[name] = found.get(name, 0.0) + amount
    return found


def _wanted(facts: Facts) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for ask in facts.cluster.asks if facts.cluster is not None else ():
        for name, amount in ask.requests.items():
            found[name] = found.get(name, 0.0) + ask.count * amount
    return found
