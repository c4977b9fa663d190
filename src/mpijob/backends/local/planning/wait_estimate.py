"""Wait estimates of this machine's queue, from its order, the running jobs, and earlier runs of the same commands.

`observation.state.queue_wait` simulates the queue, by the rules of `queue.scheduler`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from mpijob import codec
from mpijob.backends.local.queue import scheduler
from mpijob.backends.local.queue.store import (
    NEVER,
    SCHEDULABLE,
    Store,
    command_hash,
    decode_state,
    time_limit,
)
from mpijob.model import Amounts, MPIJob
from mpijob.model.spec import quantity
from mpijob.model.status.forecast import Forecast
from mpijob.observation.state import queue_wait
from mpijob.settings import Settings

# The plan is large; it is read only for rows of earlier releases, which lack the two columns.
_RUN_TIME = "CASE WHEN command IS NULL THEN plan END, command, time_limit"
_HOLDING = (
    f"SELECT owner, namespace, state, {_RUN_TIME}, cores, memory, gpus"
    " FROM jobs JOIN plans USING (uid) WHERE holds=1"
)
_QUEUED = (
    f"SELECT uid, owner, namespace, priority, not_before, {_RUN_TIME}, cores, memory, gpus"
    f" FROM jobs INDEXED BY waiting JOIN plans USING (uid) WHERE {SCHEDULABLE} ORDER BY priority DESC, seq LIMIT ?"
)
_ENDED = (
    f"SELECT state, {_RUN_TIME} FROM jobs JOIN plans USING (uid) WHERE phase IN ('Succeeded', 'Failed')"
    " ORDER BY seq DESC LIMIT 50"
)
_LAST_SIMULATED = (
    f"SELECT priority, seq FROM jobs INDEXED BY waiting WHERE {SCHEDULABLE}"
    " ORDER BY priority DESC, seq LIMIT 1 OFFSET ?"
)
_COUNT_AHEAD = (
    f"SELECT count(*) FROM jobs INDEXED BY waiting WHERE {SCHEDULABLE}"
    " AND (priority>? OR priority=? AND seq<?)"
)


class _Planned(msgspec.Struct, frozen=True):
    """The part of a plan that is needed here; the rest is not decoded."""

    job: MPIJob


class NewJob(NamedTuple):
    """A job that is not submitted yet."""

    job: MPIJob
    owner: str
    needs: Amounts


def forecasts(
    store: Store, settings: Settings, capacity: Amounts, now: float, uids: Collection[str]
) -> dict[str, Forecast]:
    """Return the forecasts of those of these jobs that wait for resources, by uid."""
    distant = _distant_positions(store, uids)
    if distant.keys() >= set(uids):
        return distant
    rows = store.read(_QUEUED, queue_wait.MOST)
    queue = _queue(store, settings, capacity, now, rows, None)
    return distant | dict(zip((uid for uid, *_ in rows), queue_wait.forecasts(queue), strict=True))


def _distant_positions(store: Store, uids: Collection[str]) -> dict[str, Forecast]:
    """Return positions, without estimates, of those jobs that are behind the simulated part of the queue."""
    found: dict[str, Forecast] = {}
    for priority, last in store.read(_LAST_SIMULATED, queue_wait.MOST - 1):
        for uid in uids:
            rows = store.read(
                f"SELECT priority, seq FROM jobs WHERE uid=? AND {SCHEDULABLE}"
                " AND (priority<? OR priority=? AND seq>?)",
                uid, priority, priority, last,
            )  # fmt: skip
            for own_priority, seq in rows:
                count = store.read(_COUNT_AHEAD, own_priority, own_priority, seq)[0][0]
                found[uid] = queue_wait.forecast_far_back(count + 1)
    return found


def forecast_new(store: Store, settings: Settings, capacity: Amounts, now: float, new: NewJob) -> Forecast:
    """Return the forecast of a job that is submitted now."""
    priority = new.job.priority_number
    last = store.read(_LAST_SIMULATED, queue_wait.MOST - 1)
    if last and last[0][0] >= priority:
        return queue_wait.forecast_far_back(store.read(_COUNT_AHEAD, priority, priority, NEVER)[0][0] + 1)
    rows = store.read(_QUEUED, queue_wait.MOST)
    return queue_wait.last_forecast(_queue(store, settings, capacity, now, rows, new))


def _queue(
    store: Store,
    settings: Settings,
    capacity: Amounts,
    now: float,
    rows: Sequence[tuple[Any, ...]],
    new: NewJob | None,
) -> queue_wait.Queue:
    holding = store.read(_HOLDING)
    waiting_times = [_RunTime.of(*row[5:8]) for row in rows]
    if new is not None:
        waiting_times.append(_RunTime.of_job(new.job))
    running_times = [_RunTime.of(*row[3:6]) for row in holding]
    runs = _past_durations(store, {time.command for time in (*waiting_times, *running_times)})
    limited = frozenset(settings.quotas)
    waiting = [
        (
            f"{namespace}/{owner}",
            priority,
            max(0.0, not_before - now),
            _amounts(Amounts(*amounts), namespace, limited),
        )
        for _, owner, namespace, priority, not_before, _, _, _, *amounts in rows
    ]
    if new is not None:
        namespace = new.job.namespace
        needs = _amounts(new.needs, namespace, limited)
        waiting.append((f"{namespace}/{new.owner}", new.job.priority_number, 0.0, needs))
    free, private = _free_amounts(store, settings, capacity)
    return queue_wait.Queue(
        free=free,
        running=tuple(
            queue_wait.Running(
                elapsed_seconds=max(0.0, now - (decode_state(state).started or now)),
                holds=_amounts(Amounts(*holds), namespace, limited),
                owner=f"{namespace}/{owner}",
                durations=tuple(runs.get(timed.command, ())),
                deadline_seconds=timed.limit,
            )
            for (owner, namespace, state, _, _, _, *holds), timed in zip(holding, running_times, strict=True)
        ),
        waiting=tuple(
            queue_wait.Waiting(
                needs=needs,
                owner=owner,
                priority=priority,
                delay_seconds=delay,
                durations=tuple(runs.get(timed.command, ())),
                deadline_seconds=timed.limit,
            )
            for (owner, priority, delay, needs), timed in zip(waiting, waiting_times, strict=True)
        ),
        fair=True,
        private=private,
    )


class _RunTime(NamedTuple):
    """What tells how long a job runs: a hash of its command, and its time limit in seconds."""

    command: str
    limit: float | None

    @classmethod
    def of(cls, plan: bytes | None, command: str, limit: float | None) -> _RunTime:
        """Return it from the columns of `_RUN_TIME`."""
        return cls(command, limit) if plan is None else cls.of_job(codec.decode(plan, _Planned).job)

    @classmethod
    def of_job(cls, job: MPIJob) -> _RunTime:
        return cls(command_hash(job), time_limit(job))


def _free_amounts(
    store: Store, settings: Settings, capacity: Amounts
) -> tuple[dict[str, float], frozenset[str]]:
    """Return free amounts, those of quotas included, and the names of the latter, which delay their namespace only."""
    free = _amounts(capacity.minus(scheduler.held_amounts(store)))
    private: dict[str, float] = {}
    for namespace, quota in settings.quotas.items():
        cores, memory, gpus, jobs = store.read(
            "SELECT total(cores), total(memory), total(gpus), count(*) FROM jobs WHERE namespace=? AND holds=1",
            namespace,
        )[0]
        memory_limit = float(quantity.parse(quota.memory)) if quota.memory else None
        limits = (quota.cpu, memory_limit, quota.gpu, quota.jobs)
        for name, limit, used in zip(
            ("cpu", "memory", "gpu", "jobs"), limits, (cores, memory, gpus, jobs), strict=True
        ):
            if limit is not None:
                private[f"{namespace}/{name}"] = limit - used
    return free | private, frozenset(private)


def _amounts(needs: Amounts, namespace: str = "", limited: frozenset[str] = frozenset()) -> dict[str, float]:
    """Return amounts by name; for a namespace with a quota (in `limited`) also those that count against it."""
    amounts = {"cpu": needs.cores, "memory": float(needs.memory_bytes), "gpu": float(needs.gpus)}
    if namespace in limited:
        amounts |= {f"{namespace}/{name}": amount for name, amount in amounts.items()}
        amounts[f"{namespace}/jobs"] = 1.0
    return amounts


def _past_durations(store: Store, commands: Collection[str]) -> dict[str, list[float]]:
    """Return the seconds that the last finished jobs held their resources, by command."""
    found: dict[str, list[float]] = {}
    for blob, *timed in store.read(_ENDED) if commands else ():
        command = _RunTime.of(*timed).command
        if command not in commands:
            continue
        state = decode_state(blob)
        if state.started is not None and state.finished is not None:
            found.setdefault(command, []).append(state.duration_seconds(state.finished) or 0.0)
    return found
