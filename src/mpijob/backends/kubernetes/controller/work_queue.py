"""The work queue of a controller or recorder: which jobs exist, and which are due to be reconciled.

A watch of each kind makes the job of a changed object due; a few threads reconcile due jobs, never two the
same job. The handler says when to reconcile again, so a lost event causes a delay and no wrong state. All
state here can be lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.informer import Cache, ListWatch
from mpijob.backends.kubernetes.client.watch import Change, Trim
from mpijob.backends.kubernetes.status import job_objects
from mpijob.errors import BackendError, MpiJobError, NotFound
from mpijob.formats.kubernetes.metadata import identity, well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import JobRef

# The label with the name of the job's object, by the source of the pods.
PODS = {
    "jobset pods": well_known.ENGINE_NAMES["TrainJob"],
    "operator pods": well_known.ENGINE_NAMES["MPIJob"],
}
# Changes come in bursts; one reconciliation covers them all.
_BATCH_SECONDS = 0.2
_RETRY_SECONDS = 3.0
_RETRY_AFTER_BUG_SECONDS = 10.0
_START_SECONDS = 30.0
_THREADS = 4
_log = logging.getLogger(__name__)


class WorkQueue:
    """The jobs of one namespace, or of all, and when each is due.

    `reconcile` is called for a job that is due, `removed` for one that no longer exists; both may raise.
    `on_pod` is called with each change of a pod, of which only what `trim` leaves is kept.
    """

    def __init__(
        self,
        api: Api,
        served: frozenset[str],
        namespace: str,
        *,
        reconcile: Callable[[JobRef], None],
        removed: Callable[[JobRef], None],
        on_pod: Callable[[Change], None] = lambda change: None,
        trim: Trim | None = None,
        more: Mapping[str, ListWatch] | None = None,
        batch_seconds: float = _BATCH_SECONDS,
    ) -> None:
        self._reconcile = reconcile
        self._removed = removed
        self._on_pod = on_pod
        self._batch_seconds = batch_seconds
        self._job_sources = [kind.plural for kind in job_objects.JOB_KINDS if kind.api in served]
        self.cache = Cache(api, _sources(served, namespace, trim or bare) | dict(more or {}))
        # A job was deleted of which only the metadata is known, without its labels.
        self.missed = threading.Event()
        self._due: dict[JobRef, float] = {}
        self._running: set[JobRef] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS)

    def __enter__(self) -> WorkQueue:
        self.cache.subscribe(self._changed)
        self.cache.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self.cache.close()

    def wait_until_listed(self) -> None:
        """Wait until all jobs are known; raise BackendError if the cluster does not respond or jobs may not
        be read.
        """
        is_listed = self.cache.settled(_START_SECONDS)
        refused = [self.cache.errors[name] for name in self._job_sources if name in self.cache.errors]
        if refused:
            raise refused[0]
        if not is_listed:
            raise BackendError("the cluster is not responding")

    def jobs(self) -> set[JobRef]:
        """Return all jobs that exist."""
        return {job_objects.ref_of(job) for source in self._job_sources for job in self.cache.objects(source)}

    def enqueue(self, ref: JobRef, delay_seconds: float | None = None) -> None:
        """Make a job due after a delay; an earlier time that is set already stays."""
        with self._lock:
            due = time.monotonic() + (self._batch_seconds if delay_seconds is None else delay_seconds)
            self._due[ref] = min(self._due.get(ref, due), due)

    def forget(self, ref: JobRef) -> None:
        """Do not reconcile a job again until one of its objects changes."""
        with self._lock:
            self._due.pop(ref, None)

    def start_due(self) -> None:
        """Start reconciling every job that is due, in threads."""
        for ref in self._take_due(time.monotonic()):
            self._pool.submit(self._reconcile_safely, ref)

    def _take_due(self, now: float) -> list[JobRef]:
        with self._lock:
            # A job that is being reconciled stays due until that has ended.
            due = [ref for ref, when in self._due.items() if when <= now and ref not in self._running]
            for ref in due:
                del self._due[ref]
                self._running.add(ref)
        return due

    def _reconcile_safely(self, ref: JobRef) -> None:
        try:
            self._reconcile_or_remove(ref)
        except MpiJobError as error:
            _log.warning("reconciling %s failed, retrying: %s", ref, error.message)
            self.enqueue(ref, _RETRY_SECONDS)
        except Exception:
            # The outermost place of this thread: the other jobs are still reconciled.
            _log.exception("reconciling %s failed", ref)
            self.enqueue(ref, _RETRY_AFTER_BUG_SECONDS)
        finally:
            with self._lock:
                self._running.discard(ref)

    def _reconcile_or_remove(self, ref: JobRef) -> None:
        try:
            self._reconcile(ref)
        except NotFound:
            self.forget(ref)
            self._removed(ref)

    def _changed(self, source: str, change: Change) -> None:
        if change.kind in ("RESET", "BOOKMARK"):
            return
        metadata = change.object["metadata"]
        if source in self._job_sources:
            # Objects that were deleted while the watch was down have name and uid only, see `watch.Change`.
            if metadata.get("creationTimestamp"):
                self.enqueue(job_objects.ref_of(change.object))
            else:
                self.missed.set()
        elif source in PODS:
            self._on_pod(change)
            for ref in self.jobs_of(change.object):
                self.enqueue(ref)

    def jobs_of(self, pod: Document) -> list[JobRef]:
        """Return the job of a pod, by the engine's label with the name of its object."""
        metadata = pod["metadata"]
        found = (
            self.cache.find(source, metadata.get("namespace", ""), name)
            for source in self._job_sources
            for name in engine_names(pod)
        )
        return [job_objects.ref_of(job) for job in found if job is not None]


def engine_names(pod: Document) -> list[str]:
    """Return the names of the job objects in the engines' labels of a pod; there is at most one."""
    labels = pod["metadata"].get("labels") or {}
    return [labels[key] for key in PODS.values() if labels.get(key)]


def _sources(served: frozenset[str], namespace: str, trim: Trim) -> dict[str, ListWatch]:
    jobs = {
        kind.plural: ListWatch(kind.path(namespace), trim=bare)
        for kind in job_objects.JOB_KINDS
        if kind.api in served
    }
    pods = {
        name: ListWatch(resources.POD.path(namespace), labels=label, trim=trim)
        for name, label in PODS.items()
    }
    return jobs | pods


def bare(document: Document) -> Document:
    """Return the metadata that identifies an object and its version."""
    kept = ("name", "namespace", "uid", "labels", "resourceVersion", "creationTimestamp")
    return {"metadata": identity.outline(document.get("metadata") or {}, kept)}
