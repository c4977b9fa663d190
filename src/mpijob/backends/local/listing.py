"""Lists, pages and what is added to a stored state when it is shown: position, wait, present usage."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from mpijob.backends.local import recovery, scheduler
from mpijob.backends.local.store import Row, Store, decode_state
from mpijob.model import Amounts, JobState, Page, Phase, Scope
from mpijob.model.selector import selects


def page(store: Store, scope: Scope) -> Page:
    """Return one page of the jobs in a scope, newest first."""
    where, values = _condition(scope)
    total = store.read(f"SELECT count(*) FROM jobs WHERE {where}", *values)[0][0]
    if scope.after:
        where, values = f"{where} AND seq<?", [*values, int(scope.after)]
    found: list[tuple[int, JobState]] = []
    for seq, state, labels in _newest(store, where, values, scope.limit, bool(scope.selector)):
        if not scope.selector or selects(scope.selector, msgspec.json.decode(labels)):
            found.append((seq, decode_state(state)))
        if len(found) > scope.limit:
            break
    more = len(found) > scope.limit
    kept = found[: scope.limit]
    after = str(kept[-1][0]) if more else ""
    return Page(tuple(_brief(state) for _, state in kept), after, total)


def _newest(store: Store, where: str, values: list[Any], limit: int, every: bool) -> list[Any]:
    bound = "" if every else f" LIMIT {limit + 1}"
    return store.read(f"SELECT seq, state, labels FROM jobs WHERE {where} ORDER BY seq DESC{bound}", *values)


def _condition(scope: Scope) -> tuple[str, list[Any]]:
    parts, values = ["newest=1"], list[Any]()
    for column, value in (("namespace", scope.namespace), ("owner", scope.owner), ("queue", scope.queue)):
        if value:
            parts.append(f"{column}=?")
            values.append(value)
    for column, several in (("name", scope.names), ("phase", scope.phases)):
        if several:
            parts.append(f"{column} IN ({','.join('?' * len(several))})")
            values += several
    if scope.text:
        parts.append("instr(name, ?)")
        values.append(scope.text)
    return " AND ".join(parts), values


def _brief(state: JobState) -> JobState:
    return msgspec.structs.replace(state, ranks=())


def count(store: Store, phase: Phase) -> int:
    """Return how many jobs are in a phase."""
    return int(store.read("SELECT count(*) FROM jobs WHERE phase=?", phase.value)[0][0])


class Clock(NamedTuple):
    """What an estimate of waiting needs to know of the place."""

    capacity: Amounts
    now: float


def live(store: Store, row: Row, clock: Clock) -> JobState:
    """Return a job's state with what is true only now: place in the queue, usage."""
    state = row.state
    if state.phase is Phase.QUEUED:
        place = scheduler.position(store, row.seq, state.priority)
        needs = Amounts(*store.read("SELECT cores, memory, gpus FROM jobs WHERE uid=?", row.uid)[0])
        from mpijob.backends.local import estimates  # only for a job that waits

        estimate = estimates.wait_estimate(store, clock, needs, row.seq)
        return msgspec.structs.replace(state, queue_position=place, wait_estimate_seconds=estimate)
    if state.phase is Phase.RUNNING:
        return _with_usage(store, state)
    if state.phase is Phase.FAILED and row.holds and recovery.tried_again(state, store.plan(row.uid).job):
        return msgspec.structs.replace(state, phase=Phase.PENDING, finished=None)  # its next attempt follows
    return state


def _with_usage(store: Store, state: JobState) -> JobState:
    rows = store.read(
        "SELECT worker, cores, memory, max(time) FROM samples WHERE uid=? AND attempt=? GROUP BY worker",
        state.ref.uid, state.attempt,
    )  # fmt: skip
    used = {worker: (cores, memory) for worker, cores, memory, _ in rows}
    workers = tuple(
        msgspec.structs.replace(worker, cpu_cores=used[worker.index][0], memory_bytes=used[worker.index][1])
        if worker.index in used
        else worker
        for worker in state.workers
    )
    return msgspec.structs.replace(state, workers=workers)
