"""Who may start: higher priority first, then first come, first served; each job wholly or not at all.

A job at the head that does not fit holds back those behind it, so that large jobs are not starved;
a job that only its own namespace's quota holds back lets the others pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mpijob.admission import needs
from mpijob.backends.memory.record import Record
from mpijob.model import Amounts, MPIJob, Quota
from mpijob.model.status.forecast import Forecast
from mpijob.observation.state import queue_wait


def order(records: Iterable[Record]) -> list[Record]:
    """Return the jobs that wait for room, the next one first."""
    waiting = [record for record in records if record.is_queued and record.delayed_until is None]
    return sorted(waiting, key=lambda record: (-record.state.priority, record.number))


def is_throttled(record: Record, others: Iterable[Record]) -> bool:
    """Whether as many jobs of a job's group run as may at once."""
    wanted = record.job.concurrency
    return wanted is not None and wanted.limit <= sum(
        other.state.phase.active
        and (other.job.namespace, other.job.group) == (record.job.namespace, record.job.group)
        for other in others
    )


def next_job(records: Iterable[Record], capacity: Amounts, quotas: Mapping[str, Quota]) -> Record | None:
    """Return the job that may start now, if there is one."""
    everyone = list(records)
    free = capacity.minus(held_amounts(everyone))
    for record in order(everyone):
        if _is_within_quota(record, everyone, quotas) and not is_throttled(record, everyone):
            return record if needs(record.job).fits(free) else None
    return None


def held_amounts(records: Iterable[Record], namespace: str | None = None) -> Amounts:
    """Return what the running jobs hold, in one namespace or in all."""
    total = Amounts()
    for record in records:
        if record.state.phase.active and namespace in (None, record.state.ref.namespace):
            total = total.plus(needs(record.job))
    return total


def with_usage(quota: Quota, records: Iterable[Record]) -> Quota:
    """Return the quota with what is used of it now."""
    mine = [record for record in records if record.state.ref.namespace == quota.namespace]
    running = sum(record.state.phase.active for record in mine)
    return msgspec.structs.replace(quota, used=held_amounts(mine), jobs_running=running)


def _is_within_quota(record: Record, others: list[Record], quotas: Mapping[str, Quota]) -> bool:
    quota = quotas.get(record.state.ref.namespace)
    if quota is None:
        return True
    used = with_usage(quota, others)
    wanted = used.used.plus(needs(record.job))
    limits = (
        (wanted.cores, quota.cores),
        (wanted.memory_bytes, quota.memory_bytes),
        (wanted.gpus, quota.gpus),
    )
    return all(limit is None or amount <= limit for amount, limit in limits) and (
        quota.jobs is None or used.jobs_running < quota.jobs
    )


def forecasts(
    records: Iterable[Record], capacity: Amounts, quotas: Mapping[str, Quota], now: float
) -> dict[str, Forecast]:
    """Return when each job starts that waits for room, by its uid."""
    everyone = list(records)
    waiting = order(everyone)
    found = queue_wait.forecasts(_queue(everyone, capacity, quotas, now))
    return {one.state.ref.uid: told for one, told in zip(waiting, found, strict=True)}


def forecast_new(
    job: MPIJob, records: Iterable[Record], capacity: Amounts, quotas: Mapping[str, Quota], now: float
) -> Forecast:
    """Return when a job would start that is submitted now."""
    queue = _queue([*records], capacity, quotas, now)
    new = queue_wait.Waiting(
        needs=_amounts(needs(job)) | _job_count(job, queue.private), priority=job.priority_number
    )
    return queue_wait.last_forecast(msgspec.structs.replace(queue, waiting=(*queue.waiting, new)))


def _queue(
    everyone: list[Record], capacity: Amounts, quotas: Mapping[str, Quota], now: float
) -> queue_wait.Queue:
    limits = {name: float(quota.jobs) for name, quota in quotas.items() if quota.jobs is not None}
    private = frozenset(limits)
    running = [record for record in everyone if record.state.phase.active]
    busy = {name: sum(one.state.ref.namespace == name for one in running) for name in limits}
    free = _amounts(capacity.minus(held_amounts(everyone))) | {
        name: limits[name] - busy[name] for name in limits
    }
    return queue_wait.Queue(
        free=free,
        running=tuple(
            queue_wait.Running(
                elapsed_seconds=max(0.0, now - (one.state.started or now)),
                holds=_amounts(needs(one.job)) | _job_count(one.job, private),
                **_run_times(one, everyone),
            )
            for one in running
        ),
        waiting=tuple(
            queue_wait.Waiting(
                needs=_amounts(needs(one.job)) | _job_count(one.job, private),
                priority=one.state.priority,
                **_run_times(one, everyone),
            )
            for one in order(everyone)
        ),
        private=private,
    )


def _amounts(amounts: Amounts) -> dict[str, float]:
    return {"cpu": amounts.cores, "memory": float(amounts.memory_bytes), "gpu": float(amounts.gpus)}


def _job_count(job: MPIJob, limited: frozenset[str]) -> dict[str, float]:
    return {job.namespace: 1.0} if job.namespace in limited else {}


def _run_times(record: Record, others: Iterable[Record]) -> dict[str, Any]:
    """Return how long a job's command ran before, and its deadline."""
    durations = tuple(
        one.state.finished - one.state.started
        for one in others
        if one.state.phase.final
        and one.state.started is not None
        and one.state.finished is not None
        and (one.job.words, one.plan.world) == (record.job.words, record.plan.world)
    )
    return {"durations": durations, "deadline_seconds": record.job.deadline_seconds}
