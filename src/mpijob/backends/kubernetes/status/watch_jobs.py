"""The states of jobs as they change, from one watch of each kind of object.

A change of any object of a job (its pods, its Workload) makes the job be read again; unchanged states are not
yielded. A watch of named jobs has their full states, logs included; one of all jobs what their objects show.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator

import msgspec

from mpijob.backends import cancellable_sleep, scope_filter
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.client.watch import Watch, watch
from mpijob.backends.kubernetes.status import derive_state as states
from mpijob.backends.kubernetes.status import job_objects, list_jobs
from mpijob.backends.outage_tolerance import OutageTolerance
from mpijob.errors import BackendError, NotFound
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import JobRef, JobState, Scope

# Changes come in bursts; one read covers them all.
_BATCH_SECONDS = 0.1
_WHICH = ("name", "namespace", "uid", "resourceVersion")
# Some changes have no event: those in logs (the world is proved), and those of time (an image takes long).
_REREAD_SECONDS = 2.0


class Watcher:
    """Watches the objects of a scope, and reports that something changed."""

    def __init__(self, api: Api, scope: Scope, served: frozenset[str]) -> None:
        self._changed: queue.SimpleQueue[ApiError | None] = queue.SimpleQueue()
        self._watches = [
            watch(api, kind.path(scope.namespace), labels=labels, trim=_bare)
            for kind, labels in _watched(served)
        ]
        for changes in self._watches:
            threading.Thread(target=self._listen, args=(changes,), daemon=True, name="watch").start()

    def wait(self) -> None:
        """Wait for a change, or a short time; raise the error that ended a watch."""
        try:
            error = self._changed.get(timeout=_REREAD_SECONDS)
            time.sleep(_BATCH_SECONDS)
            while error is None:
                error = self._changed.get_nowait()
        except queue.Empty:
            return
        raise error

    def _listen(self, changes: Watch) -> None:
        try:
            for _ in changes:
                self._changed.put(None)
        except ApiError as error:
            # Objects that may not be read are not watched. After an error that passes, jobs are read by time only.
            if error.status not in (403, 404) and not error.passing:
                self._changed.put(error)

    def close(self) -> None:
        """End all watches."""
        for changes in self._watches:
            changes.close()


def changes(
    api: Api, scope: Scope, served: frozenset[str], read: Callable[[JobRef], JobState]
) -> Generator[JobState, None, None]:
    """Yield each job of the scope once, then each change; `read` returns the state of a job."""
    watcher, yielded, tolerance = Watcher(api, scope, served), dict[JobRef, JobState](), OutageTolerance()
    try:
        states = [*_read_states(api, scope, served, read)]
        while True:
            for state in states:
                if yielded.get(state.ref) != state:
                    yielded[state.ref] = state
                    yield state
            watcher.wait()
            cancellable_sleep.raise_if_cancelled()
            states = _read_if_possible(lambda: [*_read_states(api, scope, served, read)], tolerance)
    finally:
        watcher.close()


def _read_if_possible(read: Callable[[], list[JobState]], tolerance: OutageTolerance) -> list[JobState]:
    """Return the states; none while the cluster does not respond."""
    try:
        states = read()
    except BackendError as error:
        cancellable_sleep.sleep(tolerance.tolerate(error))
        return []
    tolerance.reset()
    return states


def _read_states(
    api: Api, scope: Scope, served: frozenset[str], read: Callable[[JobRef], JobState]
) -> Iterator[JobState]:
    if not scope.names:
        every = msgspec.structs.replace(scope, limit=1_000_000, after="")
        yield from reversed(list_jobs.page(api, every, served).items)
        return
    for name in scope.names:
        try:
            state = read(JobRef(scope.namespace, name))
        except NotFound:
            continue
        if scope_filter.matches(state, scope):
            yield state


def _watched(served: frozenset[str]) -> Iterator[tuple[Kind, str]]:
    yield resources.POD, states.POD_SELECTOR
    for kind in (*job_objects.JOB_KINDS, resources.WORKLOAD):
        if kind.api in served:
            yield kind, ""


def _bare(document: Document) -> Document:
    metadata = document.get("metadata") or {}
    return {"metadata": {key: metadata[key] for key in _WHICH if key in metadata}}
