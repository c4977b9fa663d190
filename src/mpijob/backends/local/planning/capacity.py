"""The facts of this machine for admission: capacity, free resources, quota, wait estimate.

`machine` detects the capacity, `scheduler` counts what jobs hold, and `admission` decides.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from mpijob import admission
from mpijob.backends.local.planning import machine, wait_estimate
from mpijob.backends.local.queue import dependencies, list_jobs, scheduler
from mpijob.backends.local.queue.store import Store
from mpijob.errors import NotFound
from mpijob.model import Amounts, Facts, JobRef, JobState, MPIJob, Phase, Quota
from mpijob.model.spec import quantity
from mpijob.model.status.forecast import Forecast
from mpijob.settings import Settings

# In sentences of `admission`.
_PLACE = "this machine"


def facts(store: Store, settings: Settings, job: MPIJob, who: str) -> Facts:
    """Return the facts by which admission decides on a job of user `who`."""
    capacity = machine.capacity(settings)
    row = store.find(JobRef(job.namespace, job.name))
    needs = scheduler.cap_cores(admission.needs(job), capacity, oversubscribe=settings.oversubscribe)
    new = wait_estimate.NewJob(job, job.owner or who, needs)
    found = wait_estimate.forecast_new(store, settings, capacity, time.time(), new)
    return Facts(
        place=_PLACE,
        capacity=capacity,
        free=capacity.minus(scheduler.held_amounts(store)),
        oversubscribe=settings.oversubscribe,
        quota=_quota(store, settings, job.namespace),
        max_workers=settings.max_workers,
        taken_names=frozenset({job.name} if row is not None and not row.phase.final else ()),
        waiting_jobs=list_jobs.count(store, Phase.QUEUED),
        wait_estimate_seconds=found.seconds,
        wait_range_seconds=found.span,
        wait_basis=found.basis,
        dependencies=dependencies.find_new(store, job),
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


def add_forecasts(store: Store, settings: Settings, states: Sequence[JobState]) -> tuple[JobState, ...]:
    """Return the states, those of queued jobs with the reason, queue position and estimate of their wait."""
    capacity = machine.capacity(settings)
    uids = {state.ref.uid for state in states if state.phase is Phase.QUEUED}
    # Of all at once: the queue is simulated only once.
    known = wait_estimate.forecasts(store, settings, capacity, time.time(), uids)
    common_facts = Facts(
        place=_PLACE,
        capacity=capacity,
        free=capacity.minus(scheduler.held_amounts(store)),
        oversubscribe=settings.oversubscribe,
    )
    return tuple(
        _add_forecast(store, common_facts, state, known) if state.phase is Phase.QUEUED else state
        for state in states
    )


def _add_forecast(
    store: Store, common_facts: Facts, state: JobState, known: Mapping[str, Forecast]
) -> JobState:
    try:
        plan = store.plan(state.ref.uid)
    # It was deleted meanwhile.
    except NotFound:
        return state
    if plan.waits_for and dependencies.is_held(state):
        return dependencies.with_waiting(state, plan, store)
    if scheduler.is_throttled(store, plan.job):
        return msgspec.structs.replace(state, waiting_for=admission.group_sentence(plan.job))
    if (found := known.get(state.ref.uid)) is not None:
        state = state.forecast(found)
    ahead = (state.queue_position or 1) - 1
    facts = msgspec.structs.replace(common_facts, waiting_jobs=ahead)
    sentence = admission.waiting_sentence(plan.job, facts)
    return msgspec.structs.replace(state, waiting_for=sentence or state.waiting_for)
