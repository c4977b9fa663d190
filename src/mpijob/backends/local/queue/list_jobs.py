"""Lists of jobs in pages, and job states with their present usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mpijob.backends.local.queue import recovery
from mpijob.backends.local.queue.store import decode_state
from mpijob.model import Page, Phase
from mpijob.model.spec.selector import selects

if TYPE_CHECKING:
    from mpijob.backends.local.queue.store import Row, Store
    from mpijob.model import JobState, Scope


# The kind of every job on this engine.
_KIND = "mpijob"


def page(store: Store, scope: Scope) -> Page:
    """Return one page of the jobs in a scope, newest first."""
    where, values = _condition(scope)
    if scope.selector:
        return _page_of_selected(store, scope, where, values)
    total = store.read(f"SELECT count(*) FROM jobs WHERE {where}", *values)[0][0]
    if scope.after:
        where, values = f"{where} AND seq<?", [*values, scope.place]
    rows = _newest(store, where, values, f" LIMIT {scope.limit + 1}")
    return _page([(seq, state) for seq, state, _ in rows], scope.limit, total)


def _page_of_selected(store: Store, scope: Scope, where: str, values: list[Any]) -> Page:
    # Labels are matched here, not in SQL: all jobs of the scope are read, so that `total` is right.
    rows, place = _newest(store, where, values), scope.place
    matching = [
        (seq, state) for seq, state, labels in rows if selects(scope.selector, msgspec.json.decode(labels))
    ]
    later = [(seq, state) for seq, state in matching if not place or seq < place]
    return _page(later[: scope.limit + 1], scope.limit, len(matching))


def _page(rows: list[tuple[int, bytes]], limit: int, total: int) -> Page:
    """Return a page of at most `limit` jobs; one row more says that there is a next page."""
    shown = rows[:limit]
    after = str(shown[-1][0]) if len(rows) > limit else ""
    # Without ranks: there may be hundreds for each job.
    items = (msgspec.structs.replace(decode_state(state), ranks=()) for _, state in shown)
    return Page(tuple(items), after, total)


def _newest(store: Store, where: str, values: list[Any], bound: str = "") -> list[Any]:
    return store.read(f"SELECT seq, state, labels FROM jobs WHERE {where} ORDER BY seq DESC{bound}", *values)


def _condition(scope: Scope) -> tuple[str, list[Any]]:
    parts, values = ["1" if scope.runs else "newest=1"], list[Any]()
    for column, value in (("namespace", scope.namespace), ("owner", scope.owner), ("queue", scope.queue)):
        if value:
            parts.append(f"{column}=?")
            values.append(value)
    for column, several in (("name", scope.names), ("phase", scope.phases)):
        if several:
            parts.append(f"{column} IN ({','.join('?' * len(several))})")
            values += several
    if scope.kinds and _KIND not in scope.kinds:
        parts.append("0")
    for bound, sign in ((scope.since, ">="), (scope.until, "<")):
        if bound is not None:
            parts.append(f"json_extract(CAST(state AS TEXT), '$.created'){sign}?")
            values.append(bound)
    if scope.text:
        parts.append("instr(name, ?)")
        values.append(scope.text)
    return " AND ".join(parts), values


def count(store: Store, phase: Phase) -> int:
    return int(store.read("SELECT count(*) FROM jobs WHERE phase=?", phase.value)[0][0])


def current_state(store: Store, row: Row) -> JobState:
    """Return a job's state with its present usage; a failed attempt that will be retried is Pending."""
    state = row.state
    if state.phase is Phase.RUNNING:
        return _with_usage(store, state)
    # Between the supervisor's last write and the runner's decision; Failed would be taken for the end of the job.
    if state.phase is Phase.FAILED and row.holds and recovery.is_retried(state, store.plan(row.uid).job):
        return msgspec.structs.replace(state, phase=Phase.PENDING, finished=None)
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
