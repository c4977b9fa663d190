"""What this machine offers to a job: what it has, what of it is free, what a namespace may take, how long one waits.

Measuring is done in `machine`, counting in `store` and `scheduler`; what it means for a job is judged by `admission`.
"""

from __future__ import annotations

import time

import msgspec

from mpijob import admission
from mpijob.backends.local.planning import machine, wait_estimate
from mpijob.backends.local.queue import dependencies, list_jobs, scheduler
from mpijob.backends.local.queue.store import Store
from mpijob.model import Amounts, Facts, JobRef, JobState, MPIJob, Phase, Quota
from mpijob.model.spec import quantity
from mpijob.settings import Settings

_PLACE = "this machine"


def facts(store: Store, settings: Settings, job: MPIJob) -> Facts:
    """Return what this machine has and what of it is free."""
    capacity = machine.capacity(settings)
    row = store.find(JobRef(job.namespace, job.name))
    clock = scheduler.Clock(capacity, time.time())
    needs = admission.needs(job)
    estimate = wait_estimate.wait_estimate(store, clock, needs)
    bound = None if estimate is not None else wait_estimate.wait_bound(store, clock, needs)
    return Facts(
        place=_PLACE,
        capacity=capacity,
        free=capacity.minus(scheduler.held(store)),
        oversubscribe=settings.oversubscribe,
        quota=_quota(store, settings, job.namespace),
        max_workers=settings.max_workers,
        taken_names=frozenset({job.name} if row is not None and not row.phase.final else ()),
        waiting_jobs=list_jobs.count(store, Phase.QUEUED),
        wait_estimate_seconds=estimate,
        wait_range_seconds=None if bound is None else (0.0, bound),
        dependencies=dependencies.wanted(store, job),
    )


def _quota(store: Store, settings: Settings, namespace: str) -> Quota | None:
    setting = settings.quotas.get(namespace)
    if setting is None:
        return None
    cores, memory, gpus, running = store.read(
        "SELECT total(cores), sum(memory), sum(gpus), count(*) FROM jobs WHERE namespace=? AND holds=1",
        namespace,
    )[0]
    return Quota(
        namespace=namespace,
        cores=setting.cpu,
        memory_bytes=int(quantity.parse(setting.memory)) if setting.memory else None,
        gpus=setting.gpu,
        jobs=setting.jobs,
        used=Amounts(cores, memory or 0, gpus or 0),
        jobs_running=running,
        request_url=settings.quota_request_url,
    )


def with_reason_to_wait(store: Store, settings: Settings, state: JobState) -> JobState:
    """Say what a queued job waits for, with the numbers of this moment."""
    plan = store.plan(state.ref.uid)
    if plan.waits_for and dependencies.is_held(state):
        return dependencies.told(state, plan.waits_for, store)
    capacity = machine.capacity(settings)
    around = Facts(
        place=_PLACE,
        capacity=capacity,
        free=capacity.minus(scheduler.held(store)),
        oversubscribe=settings.oversubscribe,
    )
    return msgspec.structs.replace(state, waiting_for=admission.waiting_sentence(plan.job, around))
