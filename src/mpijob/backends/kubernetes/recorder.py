"""The recorder: a process that writes down every job of its namespaces while they run.

One watch for each kind of object tells that something moved; the job is then looked at and written down
(`recording`), and every pod that has started is listened to (`listening`). Nothing is kept here that could not
be lost: after a kill the record itself says how far it got. What happened while nobody recorded is told.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from mpijob.backends.kubernetes import gathering, kinds
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.listening import Life, Listener, abandon
from mpijob.backends.kubernetes.looking import Eye
from mpijob.backends.kubernetes.recording import Scribe
from mpijob.backends.kubernetes.reflecting import Cache, Source
from mpijob.backends.kubernetes.watching import Change
from mpijob.dialects import terms
from mpijob.dialects.terms import Document
from mpijob.errors import BackendError, MpiJobError, NotFound
from mpijob.history import keeping
from mpijob.history.archive import Archive
from mpijob.history.sessions import Session
from mpijob.model import JobRef

_LABELS = {  # by which a pod says to which job's object it belongs
    "jobset pods": "jobset.sigs.k8s.io/jobset-name",
    "operator pods": "training.kubeflow.org/job-name",
}
_TICK_SECONDS = 0.25
_SETTLE_SECONDS = 0.2  # changes come in swarms; one look serves them all
_LOOK_AGAIN_SECONDS = 10.0  # what only logs or the clock tell
_LAST_LOOK_SECONDS = 3.0  # after a job's end: events and ends of pods come late
_FLUSH_SECONDS = 1.0
_TIDY_SECONDS = 600.0
_START_SECONDS = 30.0
_END_SECONDS = 5.0
_LOOKS_AT_ONCE = 4
_log = logging.getLogger(__name__)


class Recorder:
    """Records the jobs of one namespace, or of all."""

    def __init__(self, api: Api, archive: Archive, policy: keeping.Policy, namespace: str = "") -> None:
        self._api = api
        self._archive = archive
        self._policy = policy
        self._namespace = namespace
        self._eye = Eye(api)
        self._scribe = Scribe(api, self._eye, archive)
        self._cache = Cache(api, self._sources())
        self._due: dict[JobRef, float] = {}
        self._looking: set[JobRef] = set()
        self._final: set[JobRef] = set()
        self._listeners: dict[str, Listener] = {}
        self._last_pods: queue.SimpleQueue[tuple[str, Document]] = queue.SimpleQueue()
        self._missed = threading.Event()  # some deletion was told without saying whose
        self._lock = threading.Lock()

    def _sources(self) -> dict[str, Source]:
        served = self._eye.served
        jobs = {
            f"{kind.plural}": Source(kind.path(self._namespace), trim=_bare)
            for kind in gathering.JOB_KINDS
            if kind.api in served
        }
        pods = {
            name: Source(kinds.POD.path(self._namespace), labels=label, trim=_outline)
            for name, label in _LABELS.items()
        }
        return jobs | pods

    def run(self, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Record until told to stop; raise Conflict where another recorder writes, BackendError for no cluster."""
        with self._archive.exclusive():
            session = Session(self._archive, time.time())
            self._cache.subscribe(self._changed)
            try:
                with self._cache, ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
                    self._begin(session)
                    ready()
                    self._go_on(stop, session, pool)
            finally:
                self._end(session)

    def _begin(self, session: Session) -> None:
        """Take up what the last recorder left: jobs that are gone meanwhile, and those that are still there."""
        settled = self._cache.settled(_START_SECONDS)
        jobs = [name for name in self._cache.errors if name not in _LABELS]
        if jobs or not settled:
            raise next(
                (self._cache.errors[name] for name in jobs), BackendError("the cluster does not answer")
            )
        there = self._there()
        for ref in session.unfinished(self._namespace):
            session.tell_break(ref)
            if ref not in there:
                self._write_gone(ref, f"the job was deleted while nobody recorded, {session.break_words()}")
        for ref in there:
            self._wish(ref, 0.0)

    def _there(self) -> set[JobRef]:
        return {gathering.ref_of(job) for one in self._job_sources() for job in self._cache.objects(one)}

    def _go_on(self, stop: threading.Event, session: Session, pool: ThreadPoolExecutor) -> None:
        flushed = tidied = 0.0
        while not stop.wait(_TICK_SECONDS):
            now = time.monotonic()
            if self._missed.is_set():
                self._missed.clear()
                for ref in {*session.unfinished(self._namespace)} - self._there():
                    self._wish(ref)
            self._keep_last_pods()
            for ref in self._take_due(now):
                pool.submit(self._look, ref)
            if now - flushed >= _FLUSH_SECONDS:
                flushed = now
                self._flush()
                self._carefully(lambda: session.beat(time.time()))
            if now - tidied >= _TIDY_SECONDS:
                tidied = now
                self._carefully(lambda: keeping.tidy(self._archive, self._policy, time.time()))

    def _end(self, session: Session) -> None:
        listeners = [*self._listeners.values()]
        for listener in listeners:
            listener.close()
        deadline = time.monotonic() + _END_SECONDS
        for listener in listeners:
            listener.join(max(0.0, deadline - time.monotonic()))
        self._flush()
        self._carefully(lambda: session.end(time.time()))

    # -- what moved -------------------------------------------------------------------------------
    def _job_sources(self) -> list[str]:
        return [kind.plural for kind in gathering.JOB_KINDS if kind.api in self._eye.served]

    def _changed(self, source: str, change: Change) -> None:
        if change.kind in ("RESET", "BOOKMARK"):
            return
        metadata = change.object["metadata"]
        if source not in _LABELS:
            if metadata.get("creationTimestamp"):
                self._wish(gathering.ref_of(change.object))
            else:
                self._missed.set()
            return
        labels = metadata.get("labels") or {}
        if change.kind == "DELETED" and labels.get(terms.UID_LABEL):
            self._last_pods.put((labels[terms.UID_LABEL], change.object))
        name = labels.get(_LABELS[source], "")
        for one in self._job_sources():
            if (job := self._cache.find(one, metadata.get("namespace", ""), name)) is not None:
                self._wish(gathering.ref_of(job))

    def _wish(self, ref: JobRef, delay_seconds: float = _SETTLE_SECONDS) -> None:
        with self._lock:
            due = time.monotonic() + delay_seconds
            self._due[ref] = min(self._due.get(ref, due), due)

    def _take_due(self, now: float) -> list[JobRef]:
        with self._lock:
            due = [ref for ref, when in self._due.items() if when <= now and ref not in self._looking]
            for ref in due:
                del self._due[ref]
                self._looking.add(ref)
        return due

    def _keep_last_pods(self) -> None:
        """Write down how pods were when they went: the only place where some of them tell how they ended."""
        while not self._last_pods.empty():
            uid, pod = self._last_pods.get()
            if self._archive.state(uid) is not None:
                self._carefully(partial(self._scribe.keep, uid, pod))

    # -- one job ----------------------------------------------------------------------------------
    def _look(self, ref: JobRef) -> None:
        try:
            self._write(ref)
        except NotFound:
            self._carefully(lambda: self._write_gone(ref))
        except MpiJobError as error:
            _log.warning("%s is looked at again in a moment: %s", ref, error.message)
            self._wish(ref, _LAST_LOOK_SECONDS)
        except Exception:  # the outermost place of this thread: the other jobs go on
            _log.exception("%s could not be written down", ref)
            self._wish(ref, _LOOK_AGAIN_SECONDS)
        finally:
            with self._lock:
                self._looking.discard(ref)

    def _write(self, ref: JobRef) -> None:
        state, lives = self._scribe.write(ref)
        for life in lives:
            self._hear(ref.uid, life)
        self._abandon(ref.uid, {life.origin for life in lives})
        if not state.phase.final:
            self._final.discard(ref)
            self._wish(ref, _LOOK_AGAIN_SECONDS)
        elif ref not in self._final:
            self._final.add(ref)
            self._wish(ref, _LAST_LOOK_SECONDS)

    def _hear(self, uid: str, life: Life) -> None:
        with self._lock:
            if life.origin in self._listeners:
                return
            stored = self._archive.voice(life.stored(uid))
            if stored.ended:
                return
            listener = self._listeners[life.origin] = Listener(self._api, self._archive, uid, life)
        listener.start()

    def _abandon(self, uid: str, present: set[str]) -> None:
        """End the record of voices that nobody hears and that will not come back."""
        for voice in self._archive.voices(uid):
            if not voice.ended and voice.origin not in present and voice.origin not in self._listeners:
                abandon(self._archive, voice)

    def _write_gone(self, ref: JobRef, why: str = "") -> None:
        """Write down that a job is gone, unless another of its objects is there."""
        with self._lock:
            self._due.pop(ref, None)
        self._final.discard(ref)
        self._abandon(ref.uid, set())
        self._archive.mark_deleted(ref.uid, time.time(), why)

    # -- lines ------------------------------------------------------------------------------------
    def _flush(self) -> None:
        for origin, listener in [*self._listeners.items()]:
            self._carefully(listener.capture.flush)
            if not listener.is_alive():
                with self._lock:
                    self._listeners.pop(origin, None)

    def _carefully(self, act: Callable[[], object]) -> None:
        """Do what can be done again later; a full disk does not end a recorder."""
        try:
            act()
        except BackendError as error:
            _log.warning("%s", error)


def _bare(document: Document) -> Document:
    """Whose it is, and that it changed, is enough to know."""
    metadata = document.get("metadata") or {}
    kept = ("name", "namespace", "uid", "labels", "resourceVersion", "creationTimestamp")
    return {"metadata": {key: metadata[key] for key in kept if key in metadata}}


def _outline(pod: Document) -> Document:
    """Of a pod also where it was and how it ended."""
    node = (pod.get("spec") or {}).get("nodeName") or ""
    return _bare(pod) | {"spec": {"nodeName": node}, "status": pod.get("status") or {}}
