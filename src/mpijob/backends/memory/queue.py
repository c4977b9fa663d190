"""Who may start: higher priority first, then first come, first served; each job wholly or not at all.

A job at the head that does not fit holds back those behind it, so that large jobs are not starved;
a job that only its own namespace's quota holds back lets the others pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mpijob.admission import needs
from mpijob.backends.memory.record import Record
from mpijob.model import Amounts, Quota


def order(records: Iterable[Record]) -> list[Record]:
    """Return the jobs that wait for room, the next one first."""
    waiting = [record for record in records if record.waits and record.rests_until is None]
    return sorted(waiting, key=lambda record: (-record.state.priority, record.number))


def next_up(records: Iterable[Record], capacity: Amounts, quotas: Mapping[str, Quota]) -> Record | None:
    """Return the job that may start now, if there is one."""
    everyone = list(records)
    free = capacity.minus(held(everyone))
    for record in order(everyone):
        if _within(record, everyone, quotas):
            return record if needs(record.job).fits(free) else None
    return None


def held(records: Iterable[Record], namespace: str | None = None) -> Amounts:
    """Return what the running jobs hold, in one namespace or in all."""
    total = Amounts()
    for record in records:
        if record.state.phase.active and namespace in (None, record.state.ref.namespace):
            total = total.plus(needs(record.job))
    return total


def usage(quota: Quota, records: Iterable[Record]) -> Quota:
    """Return the quota with what is used of it now."""
    mine = [record for record in records if record.state.ref.namespace == quota.namespace]
    running = sum(record.state.phase.active for record in mine)
    return msgspec.structs.replace(quota, used=held(mine), jobs_running=running)


def _within(record: Record, others: list[Record], quotas: Mapping[str, Quota]) -> bool:
    quota = quotas.get(record.state.ref.namespace)
    if quota is None:
        return True
    used = usage(quota, others)
    wanted = used.used.plus(needs(record.job))
    limits = (
        (wanted.cores, quota.cores),
        (wanted.memory_bytes, quota.memory_bytes),
        (wanted.gpus, quota.gpus),
    )
    return all(limit is None or amount <= limit for amount, limit in limits) and (
        quota.jobs is None or used.jobs_running < quota.jobs
    )
