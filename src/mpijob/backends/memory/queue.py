"""Which job starts next: by priority, then by age, with all its workers at once or not at all.

The first job in this order blocks the others until it fits, so that large jobs do not starve. A job that only its
namespace's quota or its group's limit holds back does not block others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob.admission import needs
from mpijob.backends.memory.record import Record
from mpijob.model import Amounts, MPIJob, Quota
from mpijob.model.status.forecast import Forecast
from mpijob.observation.state import queue_wait

if TYPE_CHECKING:
    from mpijob.backends.memory.engine import Engine


def order(records: Iterable[Record]) -> list[Record]:
    """Return the jobs that wait for capacity, the next one first."""
    waiting = [record for record in records if record.is_queued and record.delayed_until is None]
    return sorted(waiting, key=lambda record: (-record.state.priority, record.number))


def is_throttled(record: Record, others: Iterable[Record]) -> bool:
    """Return whether the job's group has reached its limit of concurrent jobs."""
    concurrency = record.job.concurrency
    return concurrency is not None and concurrency.limit <= sum(
        other.state.phase.active
        and (other.job.namespace, other.job.group) == (record.job.namespace, record.job.group)
        for other in others
    )


def next_job(engine: Engine) -> Record | None:
    """Return the job that can start now; None if there is none, or the first in order does not fit."""
    records = engine.records.values()
    for record in order(records):
        if _is_within_quota(record, engine) and not is_throttled(record, records):
            return record if needs(record.job).fits(engine.capacity.minus(held_amounts(records))) else None
    return None


def held_amounts(records: Iterable[Record], namespace: str | None = None) -> Amounts:
    """Return what the active jobs hold, in one namespace or in all."""
    total = Amounts()
    for record in records:
        if record.state.phase.active and namespace in (None, record.state.ref.namespace):
            total = total.plus(needs(record.job))
    return total


def with_usage(quota: Quota, records: Iterable[Record]) -> Quota:
    """Return the quota with its current use."""
    active = [record for record in records if record.state.phase.active]
    running = sum(record.job.namespace == quota.namespace for record in active)
    return msgspec.structs.replace(quota, used=held_amounts(active, quota.namespace), jobs_running=running)


def _is_within_quota(record: Record, engine: Engine) -> bool:
    quota = engine.quotas.get(record.job.namespace)
    if quota is None:
        return True
    current = with_usage(quota, engine.records.values())
    used = current.used.plus(needs(record.job))
    limits = (
        (used.cores, quota.cores),
        (used.memory_bytes, quota.memory_bytes),
        (used.gpus, quota.gpus),
        (current.jobs_running + 1, quota.jobs),
    )
    return all(limit is None or amount <= limit for amount, limit in limits)


def forecasts(engine: Engine) -> dict[str, Forecast]:
    """Return when each job that waits for capacity will start, by uid."""
    uids = [record.state.ref.uid for record in order(engine.records.values())]
    return dict(zip(uids, queue_wait.forecasts(_queue(engine)), strict=True))


def forecast_new(engine: Engine, job: MPIJob) -> Forecast:
    """Return when a job that is submitted now would start."""
    queue = _queue(engine)
    new = queue_wait.Waiting(
        needs=_amounts(needs(job)) | _job_count(job, queue.private), priority=job.priority_number
    )
    return queue_wait.last_forecast(msgspec.structs.replace(queue, waiting=(*queue.waiting, new)))


def _queue(engine: Engine) -> queue_wait.Queue:
    records, quotas = engine.records.values(), engine.quotas
    # The number of jobs that a namespace may run is an amount like cores, which only its own jobs use.
    limits = {name: float(quota.jobs) for name, quota in quotas.items() if quota.jobs is not None}
    private = frozenset(limits)
    active = [record for record in records if record.state.phase.active]
    free = _amounts(engine.capacity.minus(held_amounts(active)))
    free |= {
        name: limit - sum(record.job.namespace == name for record in active) for name, limit in limits.items()
    }
    return queue_wait.Queue(
        free=free,
        running=tuple(
            queue_wait.Running(
                elapsed_seconds=max(0.0, engine.now - (record.state.started or engine.now)),
                holds=_amounts(needs(record.job)) | _job_count(record.job, private),
                **_run_times(record, records),
            )
            for record in active
        ),
        waiting=tuple(
            queue_wait.Waiting(
                needs=_amounts(needs(record.job)) | _job_count(record.job, private),
                priority=record.state.priority,
                **_run_times(record, records),
            )
            for record in order(records)
        ),
        private=private,
    )


def _amounts(amounts: Amounts) -> dict[str, float]:
    return {"cpu": amounts.cores, "memory": float(amounts.memory_bytes), "gpu": float(amounts.gpus)}


def _job_count(job: MPIJob, limited: frozenset[str]) -> dict[str, float]:
    return {job.namespace: 1.0} if job.namespace in limited else {}


def _run_times(record: Record, others: Iterable[Record]) -> dict[str, Any]:
    """Return the fields of `queue_wait.JobTimes`: how long earlier jobs with the same command ran, and the deadline."""
    # The same words with another number of ranks take another time.
    durations = tuple(
        other.state.finished - other.state.started
        for other in others
        if other.state.phase.final
        and other.state.started is not None
        and other.state.finished is not None
        and (other.job.words, other.plan.world) == (record.job.words, record.plan.world)
    )
    return {"durations": durations, "deadline_seconds": record.job.deadline_seconds}
