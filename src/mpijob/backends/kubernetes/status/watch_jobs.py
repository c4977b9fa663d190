"""The states of many jobs, as they change: one watch for each kind of object, whoever listens.

A change of any object of a job (its pods, its Workload) makes the job be looked at again; states that say
nothing new are not told. A watcher of few, named jobs gets the whole truth of each, logs included; one of
all jobs what their objects show.
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

_SETTLE_SECONDS = 0.1  # changes come in swarms; one look serves them all
_WHICH = ("name", "namespace", "uid", "resourceVersion")
_LOOK_AGAIN_SECONDS = 2.0  # what only logs or the clock tell (the world is proved, an image takes long)


class Watcher:
    """Watches the objects of a scope and says when something moved."""

    def __init__(self, api: Api, scope: Scope, served: frozenset[str]) -> None:
        self._moved: queue.SimpleQueue[ApiError | None] = queue.SimpleQueue()
        self._watches = [
            watch(api, kind.path(scope.namespace), labels=labels, trim=_bare)
            for kind, labels in _watched(served)
        ]
        for one in self._watches:
            threading.Thread(target=self._listen, args=(one,), daemon=True, name="watch").start()

    def wait(self) -> None:
        """Wait until something moved, or some time has passed; raise what ended a watch."""
        try:
            told = self._moved.get(timeout=_LOOK_AGAIN_SECONDS)
            time.sleep(_SETTLE_SECONDS)
            while told is None:
                told = self._moved.get_nowait()
        except queue.Empty:
            return
        raise told

    def _listen(self, changes: Watch) -> None:
        try:
            for _ in changes:
                self._moved.put(None)
        except ApiError as error:
            # What may not be seen is not waited for; what passes is looked at again in a moment, without a watch.
            if error.status not in (403, 404) and not error.passing:
                self._moved.put(error)

    def close(self) -> None:
        """End every watch."""
        for one in self._watches:
            one.close()


def changes(
    api: Api, scope: Scope, served: frozenset[str], look: Callable[[JobRef], JobState]
) -> Generator[JobState, None, None]:
    """Yield every job of the scope once, then each change."""
    watcher, told, patience = Watcher(api, scope, served), dict[JobRef, JobState](), OutageTolerance()
    try:
        states = [*_now(api, scope, served, look)]
        while True:
            for state in states:
                if told.get(state.ref) != state:
                    told[state.ref] = state
                    yield state
            watcher.wait()
            cancellable_sleep.raise_if_cancelled()
            states = _patiently(lambda: [*_now(api, scope, served, look)], patience)
    finally:
        watcher.close()


def _patiently(look: Callable[[], list[JobState]], patience: OutageTolerance) -> list[JobState]:
    """Return what a look tells, nothing while there is no answer."""
    try:
        states = look()
    except BackendError as error:
        cancellable_sleep.sleep(patience.tolerate(error))
        return []
    patience.reset()
    return states


def _now(
    api: Api, scope: Scope, served: frozenset[str], look: Callable[[JobRef], JobState]
) -> Iterator[JobState]:
    if not scope.names:
        every = msgspec.structs.replace(scope, limit=1_000_000, after="")
        yield from reversed(list_jobs.page(api, every, served).items)
        return
    for name in scope.names:
        try:
            state = look(JobRef(scope.namespace, name))
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
    """That it changed is enough to know, and which one it was."""
    metadata = document.get("metadata") or {}
    return {"metadata": {key: metadata[key] for key in _WHICH if key in metadata}}
