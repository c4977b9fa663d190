"""Accuracy of queue time estimates, from existing and deleted jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mpijob.client import paging
from mpijob.client.history import accounts
from mpijob.model import JobState, MPIJob, Scope
from mpijob.model.status.accounts import Account, AccountQuery
from mpijob.model.status.forecast import AccuracyReport, Outcome
from mpijob.observation.state import queue_backtest
from mpijob.settings import CLUSTER

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.observation.state.queue_wait import Amounts
    from mpijob.settings import Settings

_MOST = 2000
_SHOWN = 200
_STRANGERS = "the replay counts resources as free that jobs of other tools, or jobs without a record, used"


def report(backend: Backend, settings: Settings, namespace: str, since: float) -> AccuracyReport:
    """Compare estimates with the real times of jobs that were submitted since then."""
    scope = Scope(namespace=namespace, since=since, runs=True, limit=500)
    told = [one for state in _states(backend, scope) if (one := _outcome(state)) is not None]
    told = [one for one in told if queue_backtest.is_significant(one)]
    cluster = settings.engine == CLUSTER
    replayed = list(_replayed(backend, namespace, since, cluster=cluster))
    return AccuracyReport(
        told=queue_backtest.accuracy(told),
        backtest=queue_backtest.accuracy(replayed),
        since=since,
        outcomes=tuple(sorted(told, key=lambda one: -one.forecast.time)[:_SHOWN]),
        notes=(_STRANGERS,) if cluster else (),
    )


def _states(backend: Backend, scope: Scope) -> Iterator[JobState]:
    seen: set[str] = set()
    for state in paging.pages(scope, backend):
        seen.add(state.ref.uid)
        yield state
    if (past := backend.history()) is not None:
        yield from (state for state in paging.pages(scope, past) if state.ref.uid not in seen)


def _outcome(state: JobState) -> Outcome | None:
    """Return the estimate of a job and its wait; None if it has not started, or was retried."""
    if state.estimated is None or state.started is None or state.attempt != 1:
        return None
    waited = max(0.0, state.started - (state.queued or state.created))
    return Outcome(ref=state.ref, queue=state.queue, forecast=state.estimated, waited_seconds=waited)


def _replayed(backend: Backend, namespace: str, since: float, *, cluster: bool) -> Iterator[Outcome]:
    """Yield the estimates that would be made today, by replaying the jobs."""
    # A cluster's queues are independent; on one machine all jobs share one queue.
    wanted = AccountQuery(namespace=namespace if cluster else "", since=since, limit=_MOST)
    queues: dict[str, list[queue_backtest.PastJob]] = {}
    for one in accounts.page(backend, wanted).items:
        queues.setdefault(one.queue if cluster else "", []).append(_past(one))
    for name, jobs in queues.items():
        if cluster and not name:
            # Without a queue, pods wait for nodes in no order.
            continue
        capacity = None if cluster else _capacity(backend)
        found = queue_backtest.replay(jobs, capacity, strict=not cluster, fair=not cluster)
        yield from (one for one in found if namespace in ("", one.ref.namespace))


def _capacity(backend: Backend) -> Amounts:
    job = MPIJob(name="facts", namespace=backend.namespace)
    facts = backend.preflight(job, backend.whoami()).facts
    there = facts.capacity
    return {"cpu": there.cores, "memory": float(there.memory_bytes), "gpu": float(there.gpus)}


def _past(one: Account) -> queue_backtest.PastJob:
    return queue_backtest.PastJob(
        ref=one.ref,
        queue=one.queue,
        queued=one.created,
        started=one.started,
        ended=one.ended,
        needs={"cpu": one.cores, "memory": float(one.memory_bytes), "gpu": float(one.gpus)},
        program=f"{one.program}/{one.ranks}",
        owner=f"{one.ref.namespace}/{one.owner}",
        priority=one.priority,
        deadline_seconds=one.deadline_seconds,
        only_attempt=one.attempt == 1,
    )
