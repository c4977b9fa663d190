"""The recorder: a process that writes down every job of its namespaces while they run.

Each job that moved is looked at (`work_queue`) and written down (`snapshot`), and every pod that has started is
listened to (`log_capture`). Nothing is kept here that could not
be lost: after a kill the record itself says how far it got. What happened while nobody recorded is told.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

from mpijob.backends.bounded_dict import BoundedDict
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.watch import Change
from mpijob.backends.kubernetes.controller import work_queue
from mpijob.backends.kubernetes.metrics.prometheus_query import Prometheus
from mpijob.backends.kubernetes.recorder.log_capture import ContainerRun, LogCapture, abandon
from mpijob.backends.kubernetes.recorder.snapshot import SnapshotWriter
from mpijob.backends.kubernetes.status.job_reader import JobReader
from mpijob.errors import BackendError
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.history import retention
from mpijob.history.archive import Archive
from mpijob.history.recorder_sessions import Session
from mpijob.model import JobKey, JobRef, Phase

_TICK_SECONDS = 0.25
_LOOK_AGAIN_SECONDS = 10.0  # what only logs or the clock tell
_STARTING_SECONDS = 1.0  # that all ranks are there is in the log alone
_LAST_LOOK_SECONDS = 3.0  # after a job's end: events and ends of pods come late
_FLUSH_SECONDS = 1.0
_TIDY_SECONDS = 600.0
_END_SECONDS = 5.0
_MOST_OBJECTS = 10_000
_log = logging.getLogger(__name__)


class Recorder:
    """Records the jobs of one namespace, or of all."""

    def __init__(
        self,
        api: Api,
        archive: Archive,
        policy: retention.RetentionSettings,
        namespace: str = "",
        rules: str = "",
        prometheus: Prometheus | None = None,
    ) -> None:
        self._api = api
        self._archive = archive
        self._policy = policy
        self._namespace = namespace
        self._reader = JobReader(api, rules)
        self._snapshot_writer = SnapshotWriter(api, self._reader, archive, prometheus)
        self._rounds = work_queue.WorkQueue(
            api,
            self._reader.served,
            namespace,
            reconcile=self._write,
            removed=lambda ref: self._carefully(lambda: self._write_gone(ref)),
            on_pod=self._heard,
            trim=_outline,
        )
        self._final: set[JobRef] = set()
        self._listeners: dict[tuple[JobKey, str], LogCapture] = {}  # by job and origin
        self._last_pods: queue.SimpleQueue[Document] = queue.SimpleQueue()
        self._objects = BoundedDict[tuple[str, str], JobRef](
            _MOST_OBJECTS
        )  # whose pods an engine makes for an object
        self._lock = threading.Lock()

    def run(self, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Record until told to stop; raise Conflict where another recorder writes, BackendError for no cluster."""
        with self._archive.exclusive():
            session = Session(self._archive, time.time())
            try:
                with self._rounds:
                    self._begin(session)
                    ready()
                    self._go_on(stop, session)
            finally:
                self._end(session)

    def _begin(self, session: Session) -> None:
        """Take up what the last recorder left: jobs that are gone meanwhile, and those that are still there."""
        self._rounds.wait_until_listed()
        there = self._rounds.jobs()
        for ref in session.recorded_jobs(self._namespace):
            session.record_gap(ref)
            if ref not in there:
                self._write_gone(ref, f"the job was deleted while no recorder ran, {session.gap_text()}")
        for ref in there:
            self._rounds.enqueue(ref, 0.0)

    def _go_on(self, stop: threading.Event, session: Session) -> None:
        flushed = tidied = 0.0
        while not stop.wait(_TICK_SECONDS):
            now = time.monotonic()
            if self._rounds.missed.is_set():
                self._rounds.missed.clear()
                for ref in {*session.recorded_jobs(self._namespace)} - self._rounds.jobs():
                    self._rounds.enqueue(ref)
            self._keep_last_pods()
            self._rounds.start_due()
            if now - flushed >= _FLUSH_SECONDS:
                flushed = now
                self._flush()
                self._carefully(lambda: session.heartbeat(time.time()))
            if now - tidied >= _TIDY_SECONDS:
                tidied = now
                self._carefully(lambda: retention.apply_retention(self._archive, self._policy, time.time()))

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
    def _heard(self, change: Change) -> None:
        if change.kind == "DELETED":
            self._last_pods.put(change.object)

    def _keep_last_pods(self) -> None:
        """Write down how pods were when they went: the only place where some of them tell how they ended."""
        while not self._last_pods.empty():
            pod = self._last_pods.get()
            for name in work_queue.engine_names(pod):
                ref = self._objects.get((pod["metadata"].get("namespace", ""), name))
                if ref is not None and self._archive.state(ref.key) is not None:
                    self._carefully(partial(self._snapshot_writer.keep, ref.key, pod))

    # -- one job ----------------------------------------------------------------------------------
    def _write(self, ref: JobRef) -> None:
        state, lives, names = self._snapshot_writer.write(ref)
        for name in names:
            self._objects[ref.namespace, name] = ref
        for life in lives:
            self._hear(ref.key, life)
        self._abandon(ref.key, {life.origin for life in lives})
        if not state.phase.final:
            self._final.discard(ref)
            starting = state.phase is Phase.INITIALIZING
            self._rounds.enqueue(ref, _STARTING_SECONDS if starting else _LOOK_AGAIN_SECONDS)
        elif ref not in self._final:
            self._final.add(ref)
            self._rounds.enqueue(ref, _LAST_LOOK_SECONDS)

    def _hear(self, key: JobKey, life: ContainerRun) -> None:
        with self._lock:
            if (key, life.origin) in self._listeners:
                return
            stored = self._archive.add_source(life.stored(key))
            if stored.ended:
                return
            listener = self._listeners[key, life.origin] = LogCapture(self._api, self._archive, key, life)
            listener.start()  # before anybody may take it for one that has ended

    def _abandon(self, key: JobKey, present: set[str]) -> None:
        """End the record of voices that nobody hears and that will not come back."""
        for voice in self._archive.sources(key):
            if not voice.ended and voice.origin not in present and (key, voice.origin) not in self._listeners:
                abandon(self._archive, voice)

    def _write_gone(self, ref: JobRef, why: str = "") -> None:
        """Write down that a job is gone, unless another of its objects is there."""
        self._final.discard(ref)
        self._snapshot_writer.forget(ref.key)
        self._abandon(ref.key, set())
        self._archive.mark_deleted(ref.key, time.time(), why)

    # -- lines ------------------------------------------------------------------------------------
    def _flush(self) -> None:
        for place, listener in [*self._listeners.items()]:
            self._carefully(listener.capture.flush)
            with self._lock:
                if not listener.is_alive():
                    self._listeners.pop(place, None)

    def _carefully(self, act: Callable[[], object]) -> None:
        """Do what can be done again later; a full disk does not end a recorder."""
        try:
            act()
        except BackendError as error:
            _log.warning("%s", error)


def _outline(pod: Document) -> Document:
    """Of a pod also where it was and how it ended."""
    node = (pod.get("spec") or {}).get("nodeName") or ""
    return work_queue.bare(pod) | {"spec": {"nodeName": node}, "status": pod.get("status") or {}}
