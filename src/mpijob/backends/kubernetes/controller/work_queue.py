"""Looking at every job again and again: what a recorder and a controller have in common.

One watch for each kind of object tells that something moved; the job that it belongs to becomes due and is
looked at by one of a few threads, never by two at once. A lost message costs time, never truth: whoever looks
says when to look again. Nothing is kept here that could not be lost.
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

PODS = {  # by which label a pod says to which job's object it belongs
    "jobset pods": well_known.ENGINE_NAMES["TrainJob"],
    "operator pods": well_known.ENGINE_NAMES["MPIJob"],
}
_SETTLE_SECONDS = 0.2  # changes come in swarms; one look serves them all
_SOON_SECONDS = 3.0
_LATER_SECONDS = 10.0
_START_SECONDS = 30.0
_LOOKS_AT_ONCE = 4
_log = logging.getLogger(__name__)


class WorkQueue:
    """Knows which jobs of a namespace, or of all, are there, and which are to be looked at now.

    `look` is called for a job that is due, `gone` for one that is not there any more; both may raise. `heard` is
    told every change of a pod, of which no more is kept than `trim` leaves.
    """

    def __init__(
        self,
        api: Api,
        served: frozenset[str],
        namespace: str,
        *,
        look: Callable[[JobRef], None],
        gone: Callable[[JobRef], None],
        heard: Callable[[Change], None] = lambda change: None,
        trim: Trim | None = None,
        more: Mapping[str, ListWatch] | None = None,
        settle_seconds: float = _SETTLE_SECONDS,
    ) -> None:
        self._look = look
        self._gone = gone
        self._heard = heard
        self._settle_seconds = settle_seconds
        self._jobs = [kind.plural for kind in job_objects.JOB_KINDS if kind.api in served]
        self.cache = Cache(api, _sources(served, namespace, trim or bare) | dict(more or {}))
        self.missed = threading.Event()  # some deletion was told without saying whose
        self._due: dict[JobRef, float] = {}
        self._looking: set[JobRef] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_LOOKS_AT_ONCE)

    def __enter__(self) -> WorkQueue:
        self.cache.subscribe(self._changed)
        self.cache.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self.cache.close()

    def settle(self) -> None:
        """Wait until all jobs are known; raise where the cluster does not answer or jobs may not be read."""
        settled = self.cache.settled(_START_SECONDS)
        refused = [self.cache.errors[name] for name in self._jobs if name in self.cache.errors]
        if refused:
            raise refused[0]
        if not settled:
            raise BackendError("the cluster is not responding")

    def there(self) -> set[JobRef]:
        """Return every job that is there."""
        return {job_objects.ref_of(job) for one in self._jobs for job in self.cache.objects(one)}

    def wish(self, ref: JobRef, delay_seconds: float | None = None) -> None:
        """Have a job looked at after a while, or sooner if somebody else wishes it."""
        with self._lock:
            due = time.monotonic() + (self._settle_seconds if delay_seconds is None else delay_seconds)
            self._due[ref] = min(self._due.get(ref, due), due)

    def forget(self, ref: JobRef) -> None:
        """Have a job looked at no more, until something moves."""
        with self._lock:
            self._due.pop(ref, None)

    def go(self) -> None:
        """Let every job that is due be looked at."""
        for ref in self._take_due(time.monotonic()):
            self._pool.submit(self._carefully, ref)

    def _take_due(self, now: float) -> list[JobRef]:
        with self._lock:
            due = [ref for ref, when in self._due.items() if when <= now and ref not in self._looking]
            for ref in due:
                del self._due[ref]
                self._looking.add(ref)
        return due

    def _carefully(self, ref: JobRef) -> None:
        try:
            self._look_or_part(ref)
        except MpiJobError as error:
            _log.warning("reconciling %s failed, retrying: %s", ref, error.message)
            self.wish(ref, _SOON_SECONDS)
        except Exception:  # the outermost place of this thread: the other jobs go on
            _log.exception("reconciling %s failed", ref)
            self.wish(ref, _LATER_SECONDS)
        finally:
            with self._lock:
                self._looking.discard(ref)

    def _look_or_part(self, ref: JobRef) -> None:
        try:
            self._look(ref)
        except NotFound:
            self.forget(ref)
            self._gone(ref)

    def _changed(self, source: str, change: Change) -> None:
        if change.kind in ("RESET", "BOOKMARK"):
            return
        metadata = change.object["metadata"]
        if source in self._jobs:
            if metadata.get("creationTimestamp"):
                self.wish(job_objects.ref_of(change.object))
            else:
                self.missed.set()
        elif source in PODS:
            self._heard(change)
            for ref in self.jobs_of(change.object):
                self.wish(ref)

    def jobs_of(self, pod: Document) -> list[JobRef]:
        """Return whose a pod is: the engine's own label names the object that it was made for."""
        metadata = pod["metadata"]
        found = (
            self.cache.find(one, metadata.get("namespace", ""), name)
            for one in self._jobs
            for name in engine_names(pod)
        )
        return [job_objects.ref_of(job) for job in found if job is not None]


def engine_names(pod: Document) -> list[str]:
    """Return the names of the job objects that engines say a pod was made for; there is one."""
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
    """Return of an object no more than whose it is, and that it changed."""
    kept = ("name", "namespace", "uid", "labels", "resourceVersion", "creationTimestamp")
    return {"metadata": identity.outline(document.get("metadata") or {}, kept)}
