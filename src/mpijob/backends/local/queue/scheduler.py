"""Gang scheduling: the choice of the next job, and the allocation of its cores, memory and GPUs in one transaction.

The order is priority, then the owner who holds fewest cores now, then age. There is no backfill: no job overtakes the
first one while it waits for its resources, so small jobs never starve a large one.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mpijob.backends.local.planning import machine
from mpijob.backends.local.queue.store import DELAYED, HELD, SCHEDULABLE, decode_state
from mpijob.errors import NotFound
from mpijob.model import Amounts, Event, LauncherPhase, LauncherState, Phase
from mpijob.model.spec import quantity

if TYPE_CHECKING:
    from mpijob.backends.local.queue.store import Store
    from mpijob.model import MPIJob
    from mpijob.settings import Settings

# From the reading of the clock until `not_before` is stored.
_CLOCK_SLACK_SECONDS = 1.0


class Claimed(NamedTuple):
    """A job that a runner must start, with its GPUs."""

    uid: str
    attempt: int
    gpu_ids: tuple[str, ...]


def claim(store: Store, settings: Settings, runner: str, now: float) -> Claimed | None:
    """Allocate resources to the next job, for this runner; return None if there is none or it does not fit."""
    _release_held(store)
    # Without the write lock: most runners find nothing.
    if not store.read(
        f"SELECT 1 FROM jobs INDEXED BY waiting WHERE {SCHEDULABLE} AND not_before<=? LIMIT 1", now
    ):
        return None
    with store.transaction() as db:
        chosen = _next_job(store, now, settings)
        if chosen is None or not _fits(chosen, held_amounts(store), settings):
            return None
        gpus = _free_gpus(db, settings)[: chosen.gpus]
        _allocate(db, chosen, gpus, runner, now)
        return Claimed(chosen.uid, chosen.attempt, gpus)


def can_start(store: Store, now: float, settings: Settings) -> bool:
    """Return whether the next job in order could be claimed now."""
    _release_held(store)
    chosen = _next_job(store, now, settings)
    return chosen is not None and _fits(chosen, held_amounts(store), settings)


def _release_held(store: Store) -> None:
    if store.read(f"SELECT 1 FROM jobs INDEXED BY held_back WHERE {HELD} LIMIT 1"):
        # Not needed without such jobs.
        from mpijob.backends.local.queue import dependencies

        dependencies.release(store)


class _Waiting(NamedTuple):
    seq: int
    uid: str
    attempt: int
    cores: float
    memory: int
    gpus: int
    state: bytes
    namespace: str


def _next_job(store: Store, now: float, settings: Settings) -> _Waiting | None:
    """Return the first job in order, without those of namespaces at their quota."""
    full: list[str] = []
    while waiting := _first_in_order(store, now, full):
        if _within_quota(store, waiting[0], settings):
            return waiting[0]
        full.append(waiting[0].namespace)
    return None


def _within_quota(store: Store, job: _Waiting, settings: Settings) -> bool:
    quota = settings.quotas.get(job.namespace)
    if quota is None:
        return True
    cores, memory, gpus, jobs = store.read(
        "SELECT total(cores), total(memory), total(gpus), count(*) FROM jobs WHERE namespace=? AND holds=1",
        job.namespace,
    )[0]
    limits = (quota.cpu, quantity.parse(quota.memory) if quota.memory else None, quota.gpu, quota.jobs)
    needed = (cores + job.cores, memory + job.memory, gpus + job.gpus, jobs + 1)
    # A sum of fractions of cores may be a little more than the limit.
    return all(limit is None or need <= limit + 1e-9 for limit, need in zip(limits, needed, strict=True))


# SQLite has no loose index scan: the recursive query steps through the distinct turns by one index lookup each, so the
# time depends on the number of turns, not of waiting jobs. Then the first job of each turn is compared.
_FIRST_IN_ORDER = f"""
WITH RECURSIVE turns(turn) AS (
  SELECT min(turn) FROM jobs INDEXED BY in_turn WHERE {SCHEDULABLE}
  UNION ALL
  SELECT (SELECT min(n.turn) FROM jobs n INDEXED BY in_turn WHERE {SCHEDULABLE} AND n.turn > turns.turn)
  FROM turns WHERE turns.turn NOTNULL
)
SELECT j.seq, j.uid, j.attempt, j.cores, j.memory, j.gpus, j.state, j.namespace FROM turns
JOIN jobs j ON j.seq = (SELECT n.seq FROM jobs n WHERE {SCHEDULABLE} AND n.turn = turns.turn AND n.not_before <= ?
  ORDER BY n.priority DESC, n.seq LIMIT 1)
LEFT JOIN (SELECT owner, namespace, sum(cores) AS used FROM jobs WHERE holds=1 GROUP BY 1, 2) h
  ON h.owner=j.owner AND h.namespace=j.namespace
WHERE j.namespace NOT IN (SELECT value FROM json_each(?))
  AND (j.at_once IS NULL OR j.at_once > (SELECT count(*) FROM jobs g
    WHERE g.holds=1 AND g.namespace=j.namespace AND g.member_of=j.member_of))
ORDER BY j.priority DESC, coalesce(h.used, 0), j.seq LIMIT 1
"""


def _first_in_order(store: Store, now: float, without: list[str]) -> list[_Waiting]:
    rows = store.read(_FIRST_IN_ORDER, now, msgspec.json.encode(without).decode())
    return [_Waiting(*row) for row in rows]


def is_throttled(store: Store, job: MPIJob) -> bool:
    """Return whether the job's group has as many running jobs as its `concurrency` allows."""
    if job.concurrency is None:
        return False
    of_group = "SELECT count(*) FROM jobs WHERE holds=1 AND namespace=? AND member_of=?"
    return bool(store.read(of_group, job.namespace, job.group)[0][0] >= job.concurrency.limit)


def held_amounts(store: Store) -> Amounts:
    row = store.read("SELECT total(cores), sum(memory), sum(gpus) FROM jobs WHERE holds=1")[0]
    return Amounts(row[0], row[1] or 0, row[2] or 0)


def _fits(job: _Waiting, held: Amounts, settings: Settings) -> bool:
    needs = Amounts(job.cores, job.memory, job.gpus)
    return needs.fits(machine.capacity(settings).minus(held))


def cap_cores(needs: Amounts, capacity: Amounts, *, oversubscribe: bool) -> Amounts:
    """Return the amounts that a job will hold; with `oversubscribe` ranks share cores, so at most all cores."""
    if not oversubscribe or needs.cores <= capacity.cores:
        return needs
    return Amounts(capacity.cores, needs.memory_bytes, needs.gpus)


def _free_gpus(db: sqlite3.Connection, settings: Settings) -> tuple[str, ...]:
    taken = {gpu for (ids,) in db.execute("SELECT gpu_ids FROM jobs WHERE holds=1") for gpu in ids.split(",")}
    return tuple(gpu for gpu in machine.gpu_ids(settings) if gpu not in taken)


def _allocate(db: sqlite3.Connection, job: _Waiting, gpus: tuple[str, ...], runner: str, now: float) -> None:
    waiting = decode_state(job.state)
    state = msgspec.structs.replace(
        waiting,
        phase=Phase.PENDING,
        reason="StartingWorkers",
        message="resources allocated for all workers at once",
        waiting_for="",
        # The clock may have been set back meanwhile.
        started=max(now, waiting.queued or 0.0),
        attempt=job.attempt,
        launcher=LauncherState(
            name="launcher", phase=LauncherPhase.SCHEDULED, node=machine.node_name(), scheduled=now
        ),
    )
    db.execute(
        "UPDATE jobs SET phase=?, state=?, holds=1, gpu_ids=?, runner=?, version=version+1 WHERE uid=?",
        (state.phase.value, msgspec.json.encode(state), ",".join(gpus), runner, job.uid),
    )
    event = Event(now, "GangScheduled", f"resources allocated for {state.workers_wanted} workers")
    marked = msgspec.structs.replace(event, attempt=job.attempt)
    db.execute("INSERT INTO events (uid, event) VALUES (?,?)", (job.uid, msgspec.json.encode(marked)))


def seconds_until_delayed(store: Store, now: float) -> float | None:
    """Return the seconds until the first delayed attempt is due, None if there is none."""
    _repair_delays(store, now)
    rows = store.read(
        f"SELECT min(not_before) FROM jobs INDEXED BY delayed WHERE {DELAYED} AND not_before>?", now
    )
    return None if rows[0][0] is None else max(0.0, rows[0][0] - now)


def _repair_delays(store: Store, now: float) -> None:
    # A wait that is longer than the delay of the job's spec: the clock was set back since it was stored.
    waiting = store.read(
        f"SELECT uid, attempt, not_before FROM jobs INDEXED BY delayed WHERE {DELAYED} AND not_before>?", now
    )
    for uid, attempt, due in waiting:
        try:
            delay = store.plan(uid).job.retry.delay_seconds(attempt - 1)
        # It was deleted meanwhile.
        except NotFound:
            continue
        if due - now > delay + _CLOCK_SLACK_SECONDS:
            with store.transaction() as db:
                db.execute("UPDATE jobs SET not_before=? WHERE uid=?", (now + delay, uid))
