"""What this machine's queue knows of waiting: its order, who runs, and how long each command has run before.

The queue is played out by `observation/state/queue_wait`, in the order and by the rules of `queue/scheduler`.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mpijob import codec
from mpijob.backends.local.queue import scheduler
from mpijob.backends.local.queue.store import NEVER, Store, decode_state
from mpijob.model import Amounts, MPIJob
from mpijob.model.spec import quantity
from mpijob.model.status.forecast import Forecast
from mpijob.observation.state import queue_wait
from mpijob.settings import Settings

_HOLDING = (
    "SELECT owner, namespace, plan, state, cores, memory, gpus FROM jobs JOIN plans USING (uid) WHERE holds=1"
)
_QUEUED = (
    "SELECT uid, owner, namespace, priority, not_before, plan, cores, memory, gpus FROM jobs JOIN plans USING (uid)"
    " WHERE phase='Queued' AND not_before<? AND desired='' ORDER BY priority DESC, seq LIMIT ?"
)
_ENDED = (
    "SELECT plan, state FROM jobs JOIN plans USING (uid) WHERE phase IN ('Succeeded', 'Failed') "
    "ORDER BY seq DESC LIMIT 50"
)
_Command = tuple[str, ...]
_Runs = dict[_Command, list[float]]


class _Planned(msgspec.Struct, frozen=True):
    """Of a plan, what was asked for."""

    job: MPIJob


class NewJob(NamedTuple):
    """A job that is not in the queue yet."""

    job: MPIJob
    owner: str
    needs: Amounts


def forecasts(store: Store, settings: Settings, capacity: Amounts, now: float) -> dict[str, Forecast]:
    """Return for each job that waits for room, by its uid, when it will start."""
    uids, queue = _queue(store, settings, capacity, now, None)
    return dict(zip(uids, queue_wait.forecasts(queue), strict=True))


def forecast_of(
    store: Store, settings: Settings, capacity: Amounts, now: float, new: NewJob
) -> Forecast | None:
    """Return when a job would start that is submitted now."""
    _, queue = _queue(store, settings, capacity, now, new)
    return queue_wait.forecasts(queue)[-1]


def _queue(
    store: Store, settings: Settings, capacity: Amounts, now: float, new: NewJob | None
) -> tuple[list[str], queue_wait.Queue]:
    rows = store.read(_QUEUED, NEVER, 10 * queue_wait.MOST)
    runs = _runs(store) if rows or new is not None else {}
    limited = frozenset(settings.quotas)
    waiting = [
        _waiting(
            _job(plan), owner, namespace, priority, max(0.0, not_before - now), Amounts(*held), runs, limited
        )
        for _, owner, namespace, priority, not_before, plan, *held in rows
    ]
    if new is not None:
        job = new.job
        waiting.append(
            _waiting(job, new.owner, job.namespace, job.priority_number, 0.0, new.needs, runs, limited)
        )
    running = [
        _running(
            _job(plan), owner, namespace, decode_state(state).started, Amounts(*held), now, runs, limited
        )
        for owner, namespace, plan, state, *held in store.read(_HOLDING)
    ]
    free, private = _free(store, settings, capacity)
    queue = queue_wait.Queue(
        free=free, running=tuple(running), waiting=tuple(waiting), fair=True, private=private
    )
    return [uid for uid, *_ in rows], queue


def _free(store: Store, settings: Settings, capacity: Amounts) -> tuple[dict[str, float], frozenset[str]]:
    """Return what is free, also within each namespace's quota, which holds up nobody else's jobs."""
    free = _amounts(capacity.minus(scheduler.held(store)))
    private: dict[str, float] = {}
    for namespace, quota in settings.quotas.items():
        cores, memory, gpus, jobs = store.read(
            "SELECT total(cores), total(memory), total(gpus), count(*) FROM jobs WHERE namespace=? AND holds=1",
            namespace,
        )[0]
        memory_limit = float(quantity.parse(quota.memory)) if quota.memory else None
        limits = (quota.cpu, memory_limit, quota.gpu, quota.jobs)
        for name, most, used in zip(
            ("cpu", "memory", "gpu", "jobs"), limits, (cores, memory, gpus, jobs), strict=True
        ):
            if most is not None:
                private[f"{namespace}/{name}"] = most - used
    return free | private, frozenset(private)


def _amounts(needs: Amounts, namespace: str = "", limited: frozenset[str] = frozenset()) -> dict[str, float]:
    """Return amounts by their names, of a namespace with a quota also those that count against it."""
    found = {"cpu": needs.cores, "memory": float(needs.memory_bytes), "gpu": float(needs.gpus)}
    if namespace in limited:
        found |= {f"{namespace}/{name}": amount for name, amount in found.items()} | {
            f"{namespace}/jobs": 1.0
        }
    return found


def _running(
    job: MPIJob,
    owner: str,
    namespace: str,
    started: float | None,
    holds: Amounts,
    now: float,
    runs: _Runs,
    limited: frozenset[str],
) -> queue_wait.Running:
    return queue_wait.Running(
        elapsed_seconds=max(0.0, now - (started or now)),
        holds=_amounts(holds, namespace, limited),
        owner=f"{namespace}/{owner}",
        durations=tuple(runs.get(_command(job), ())),
        deadline_seconds=_limit(job),
    )


def _waiting(
    job: MPIJob,
    owner: str,
    namespace: str,
    priority: int,
    delay: float,
    needs: Amounts,
    runs: _Runs,
    limited: frozenset[str],
) -> queue_wait.Waiting:
    return queue_wait.Waiting(
        needs=_amounts(needs, namespace, limited),
        owner=f"{namespace}/{owner}",
        priority=priority,
        delay_seconds=delay,
        durations=tuple(runs.get(_command(job), ())),
        deadline_seconds=_limit(job),
    )


def _limit(job: MPIJob) -> float | None:
    """Return when a job has ended in any case."""
    return None if job.deadline_seconds is None else job.deadline_seconds + job.grace_seconds


def _runs(store: Store) -> _Runs:
    """Return how long the last finished jobs held their resources, by command."""
    found: _Runs = {}
    for plan, blob in store.read(_ENDED):
        state = decode_state(blob)
        if state.started is not None and state.finished is not None:
            found.setdefault(_command(_job(plan)), []).append(state.duration_seconds(state.finished) or 0.0)
    return found


def _command(job: MPIJob) -> _Command:
    """Return what runs of equal length have in common: every word, the image and the size of the world."""
    return (*job.words, job.image, str(job.world))


def _job(plan: bytes) -> MPIJob:
    return codec.decode(plan, _Planned).job
