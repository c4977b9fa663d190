"""Jobs that wait for other jobs (`after`): held out of the queue, let in or ended when those have ended.

A held job is queued for a time that never comes. Whoever asks who runs next (a runner after each job, a command
that looks at a queued one) looks at the held ones first, so nobody has to wait for them.
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
    """Return where the jobs stand that one waits for, by its `after`."""
    found = ((ref, store.find(ref)) for ref in refs)
    return of_entries(after, ((ref, None if row is None else row.state) for ref, row in found))


def find_new(store: Store, job: MPIJob) -> tuple[Dependency, ...]:
    """Return where the jobs stand that a new one is to wait for: the newest of each name."""
    if not job.after:
        return ()
    from mpijob.model import JobRef

    return find_dependencies(
        store, job.after, tuple(JobRef(job.namespace, name) for name in names(job.after))
    )


def release(store: Store) -> None:
    """Let every held job into the queue, or end it, whose others have ended."""
    for row in store.rows(HELD):
        with contextlib.suppress(NotFound):  # somebody has deleted it since we looked
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
    store.put(state, event, only_if=HELD, not_before=0.0)


def is_held(state: JobState) -> bool:
    """Whether a job waits for others."""
    return state.reason == WAITING


def with_waiting(state: JobState, plan: Plan, store: Store) -> JobState:
    """Return the state of a held job with what it waits for now."""
    waits = judge(state.ref.name, find_dependencies(store, plan.job.after, plan.waits_for)).waits
    return waiting(state, waits, state.message)
