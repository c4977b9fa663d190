"""Jobs that wait for other jobs (`after`): held back from the queue until those have ended.

A held job has a `not_before` that is never reached. `scheduler` calls `release` before it chooses the next job.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.local.queue.store import HELD
from mpijob.errors import NotFound, Severity
from mpijob.model import Event
from mpijob.model.spec.dependencies import (
    WAITING,
    Dependency,
    judge,
    names,
    of_entries,
    refused,
    waiting,
)

if TYPE_CHECKING:
    from mpijob.backends.local.queue.store import Row, Store
    from mpijob.model import JobRef, JobState, MPIJob, Plan


def find_dependencies(
    store: Store, after: tuple[str, ...], refs: tuple[JobRef, ...]
) -> tuple[Dependency, ...]:
    """Return the present states of the jobs in `refs`, which a job's `after` names."""
    rows = ((ref, store.find(ref)) for ref in refs)
    return of_entries(after, ((ref, None if row is None else row.state) for ref, row in rows))


def find_new(store: Store, job: MPIJob) -> tuple[Dependency, ...]:
    """Return the dependencies of a job that is not submitted yet: the newest job of each name."""
    if not job.after:
        return ()
    from mpijob.model import JobRef

    return find_dependencies(
        store, job.after, tuple(JobRef(job.namespace, name) for name in names(job.after))
    )


def release(store: Store) -> None:
    """Queue, or fail, every held job whose dependencies have ended."""
    for row in store.rows(HELD):
        # It may be deleted meanwhile.
        with contextlib.suppress(NotFound):
            _release_or_fail(store, row)


def _release_or_fail(store: Store, row: Row) -> None:
    plan = store.plan(row.uid)
    waits, finding = judge(row.state.ref.name, find_dependencies(store, plan.job.after, plan.waits_for))
    if waits:
        return
    now = time.time()
    if finding is None:
        event = Event(now, "Queued", "all its dependencies are satisfied", attempt=row.attempt)
        state = msgspec.structs.replace(
            row.state, reason="WaitingForResources", message="waiting in the queue", queued=now
        )
    else:
        event = Event(now, "Failed", finding.message, Severity.ERROR, row.attempt)
        state = refused(row.state, finding, now)
    # Another process may have released it, or a user cancelled it.
    store.put(state, event, only_if=HELD, not_before=0.0)


def is_held(state: JobState) -> bool:
    return state.reason == WAITING


def with_waiting(state: JobState, plan: Plan, store: Store) -> JobState:
    """Return the state of a held job with the jobs that it still waits for."""
    waits = judge(state.ref.name, find_dependencies(store, plan.job.after, plan.waits_for)).waits
    return waiting(state, waits, state.message)
