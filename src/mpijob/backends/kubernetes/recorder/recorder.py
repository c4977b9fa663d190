"""The recorder: stores the states and logs of all jobs of its namespaces while they run.

Each job that changed is read (`work_queue`) and stored (`snapshot`), and the log of every started pod is
recorded (`log_capture`). All state here can be lost: after a kill, the record shows how far it got. Times
without a recorder are recorded as such.
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
# Changes in logs and those of time have no event.
_REREAD_SECONDS = 10.0
# That all ranks are there is only in the log.
_STARTING_SECONDS = 1.0
# Events and the ends of pods arrive after the job's end.
_LAST_READ_SECONDS = 3.0
_FLUSH_SECONDS = 1.0
_TIDY_SECONDS = 600.0
_END_SECONDS = 5.0
_MAX_OBJECTS = 10_000
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
        self._queue = work_queue.WorkQueue(
            api,
            self._reader.served,
            namespace,
            reconcile=self._write,
            removed=lambda ref: self._carefully(lambda: self._mark_deleted(ref)),
            on_pod=self._on_pod,
            trim=_trim_pod,
        )
        self._final: set[JobRef] = set()
        # By job and origin.
        self._captures: dict[tuple[JobKey, str], LogCapture] = {}
        self._last_pods: queue.SimpleQueue[Document] = queue.SimpleQueue()
        # The jobs of engine objects, by namespace and name.
        self._objects = BoundedDict[tuple[str, str], JobRef](_MAX_OBJECTS)
        self._lock = threading.Lock()

    def run(self, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Record until `stop` is set; raise Conflict if another recorder writes, BackendError without a cluster."""
        with self._archive.exclusive():
            session = Session(self._archive, time.time())
            try:
                with self._queue:
                    self._resume(session)
                    ready()
                    self._record(stop, session)
            finally:
                self._end(session)

    def _resume(self, session: Session) -> None:
        # Jobs of the last recorder: some were deleted meanwhile, and the others have a gap.
        self._queue.wait_until_listed()
        existing = self._queue.jobs()
        for ref in session.recorded_jobs(self._namespace):
            session.record_gap(ref)
            if ref not in existing:
                self._mark_deleted(ref, f"the job was deleted while no recorder ran, {session.gap_text()}")
        for ref in existing:
            self._queue.enqueue(ref, 0.0)

    def _record(self, stop: threading.Event, session: Session) -> None:
        flushed = tidied = 0.0
        while not stop.wait(_TICK_SECONDS):
            now = time.monotonic()
            # A job was deleted of which the watch has only the metadata: find out which.
            if self._queue.missed.is_set():
                self._queue.missed.clear()
                for ref in {*session.recorded_jobs(self._namespace)} - self._queue.jobs():
                    self._queue.enqueue(ref)
            self._store_deleted_pods()
            self._queue.start_due()
            if now - flushed >= _FLUSH_SECONDS:
                flushed = now
                self._flush()
                self._carefully(lambda: session.heartbeat(time.time()))
            if now - tidied >= _TIDY_SECONDS:
                tidied = now
                self._carefully(lambda: retention.apply_retention(self._archive, self._policy, time.time()))

    def _end(self, session: Session) -> None:
        captures = [*self._captures.values()]
        for capture in captures:
            capture.close()
        deadline = time.monotonic() + _END_SECONDS
        for capture in captures:
            capture.join(max(0.0, deadline - time.monotonic()))
        self._flush()
        self._carefully(lambda: session.end(time.time()))

    # -- what moved -------------------------------------------------------------------------------
    def _on_pod(self, change: Change) -> None:
        if change.kind == "DELETED":
            self._last_pods.put(change.object)

    def _store_deleted_pods(self) -> None:
        # A deleted pod's last status is sometimes the only one with its exit code.
        while not self._last_pods.empty():
            pod = self._last_pods.get()
            for name in work_queue.engine_names(pod):
                ref = self._objects.get((pod["metadata"].get("namespace", ""), name))
                if ref is not None and self._archive.state(ref.key) is not None:
                    self._carefully(partial(self._snapshot_writer.store_pod, ref.key, pod))

    # -- one job ----------------------------------------------------------------------------------
    def _write(self, ref: JobRef) -> None:
        state, runs, names = self._snapshot_writer.write(ref)
        for name in names:
            self._objects[ref.namespace, name] = ref
        for run in runs:
            self._capture(ref.key, run)
        self._abandon(ref.key, {run.origin for run in runs})
        if not state.phase.final:
            self._final.discard(ref)
            starting = state.phase is Phase.INITIALIZING
            self._queue.enqueue(ref, _STARTING_SECONDS if starting else _REREAD_SECONDS)
        elif ref not in self._final:
            self._final.add(ref)
            self._queue.enqueue(ref, _LAST_READ_SECONDS)

    def _capture(self, key: JobKey, run: ContainerRun) -> None:
        with self._lock:
            if (key, run.origin) in self._captures:
                return
            stored = self._archive.add_source(run.stored(key))
            if stored.ended:
                return
            capture = self._captures[key, run.origin] = LogCapture(self._api, self._archive, key, run)
            # Under the lock: `_flush` removes captures whose thread is not alive.
            capture.start()

    def _abandon(self, key: JobKey, present: set[str]) -> None:
        # Sources whose pods are deleted and that no thread records any more.
        for source in self._archive.sources(key):
            if (
                not source.ended
                and source.origin not in present
                and (key, source.origin) not in self._captures
            ):
                abandon(self._archive, source)

    def _mark_deleted(self, ref: JobRef, why: str = "") -> None:
        self._final.discard(ref)
        self._snapshot_writer.forget(ref.key)
        self._abandon(ref.key, set())
        self._archive.mark_deleted(ref.key, time.time(), why)

    # -- lines ------------------------------------------------------------------------------------
    def _flush(self) -> None:
        for place, capture in [*self._captures.items()]:
            self._carefully(capture.capture.flush)
            with self._lock:
                if not capture.is_alive():
                    self._captures.pop(place, None)

    def _carefully(self, act: Callable[[], object]) -> None:
        """Call a function whose work is repeated later anyway; a full disk does not end the recorder."""
        try:
            act()
        except BackendError as error:
            _log.warning("%s", error)


def _trim_pod(pod: Document) -> Document:
    node = (pod.get("spec") or {}).get("nodeName") or ""
    return work_queue.bare(pod) | {"spec": {"nodeName": node}, "status": pod.get("status") or {}}
