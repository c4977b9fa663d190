"""The states of all jobs of a cluster, from one watch of each kind of object; no job is read on its own.

`watch_jobs` reads a job again after each change, which suits few jobs; this is for a server that shows
thousands of them to many readers. Objects are kept as JSON bytes, and only until their job has ended.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from mpijob.backends.kubernetes.client import api_errors, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.client.watch import Change, Watch, watch
from mpijob.backends.kubernetes.status import derive_state, job_objects
from mpijob.errors import MpiJobError
from mpijob.formats.kubernetes.metadata import identity, well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import JobRef, JobState
from mpijob.model.status.job_change import Gone, Heard, Overseen

# Changes come in bursts; one derived state covers them all.
_BATCH_SECONDS = 0.1
# How soon users see that the cluster does not respond.
_PULSE_SECONDS = 3.0
_START_SECONDS = 60.0
_PODS, _WORKLOADS = "pods", "workloads"
_POD_LABELS = tuple(well_known.ENGINE_NAMES.values())
_KEPT = ("name", "namespace", "uid", "resourceVersion", "labels", "creationTimestamp", "ownerReferences")
# Namespace and name.
ObjectKey = tuple[str, str]
# Namespace, name, owner, and the kind for the Training Operator, whose kinds may share a name.
Name = tuple[str, str, str, str]


class _News(NamedTuple):
    """A change of a source, an error, or None: this source, or the server's pulse, works again."""

    source: str
    what: Change | MpiJobError | None


class _Object(NamedTuple):
    """A job's object, its job, its order among those of the name, and its JSON until the job has ended."""

    ref: JobRef
    owner: str
    rank: tuple[str, int]
    uid: str
    raw: bytes


def watch_all(api: Api, namespace: str, served: frozenset[str]) -> Generator[Overseen, None, None]:
    """Yield the state of each job, a sign of life when all were yielded, then each change; raise lasting errors."""
    cluster_watch = _ClusterWatch(api, namespace, served)
    try:
        yield from cluster_watch.states()
    finally:
        cluster_watch.close()


class _ClusterWatch:
    def __init__(self, api: Api, namespace: str, served: frozenset[str]) -> None:
        self._api = api
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._jobs = {f"{kind.api}/{kind.plural}": kind for kind in _job_kinds(api, served)}
        self._objects: dict[tuple[str, ObjectKey], _Object] = {}
        self._named: dict[Name, set[tuple[str, ObjectKey]]] = {}
        self._pods: dict[ObjectKey, bytes] = {}
        self._pods_of: dict[ObjectKey, set[ObjectKey]] = {}
        # The job's object of each pod.
        self._place_of: dict[ObjectKey, ObjectKey] = {}
        # By namespace and uid of the job's object.
        self._workloads: dict[ObjectKey, bytes] = {}
        # The uid of each Workload's owner, for events of deleted ones, which have only metadata.
        self._owners: dict[ObjectKey, str] = {}
        self._published: dict[Name, tuple[JobRef, bytes]] = {}
        self._due: dict[Name, None] = {}
        self._waiting: set[str] = set()
        self._trouble: dict[str, MpiJobError] = {}
        self._refused: list[MpiJobError] = []
        self._watches = [self._watch(name, *what) for name, what in self._sources(namespace, served).items()]

    def _sources(self, namespace: str, served: frozenset[str]) -> dict[str, tuple[str, str, Any]]:
        found: dict[str, tuple[str, str, Any]] = {
            name: (kind.path(namespace), "", _packer(kind)) for name, kind in self._jobs.items()
        }
        found[_PODS] = (resources.POD.path(namespace), derive_state.POD_SELECTOR, _packer(resources.POD))
        if resources.KUEUE_API in served:
            found[_WORKLOADS] = (resources.WORKLOAD.path(namespace), "", _packer(resources.WORKLOAD))
        return found

    def _watch(self, name: str, path: str, labels: str, trim: Any) -> Watch:
        def troubled(error: ApiError | None) -> None:
            translated_error = None if error is None else api_errors.translate(error, doing="watch jobs")
            self._news.put(_News(name, translated_error))

        changes = watch(self._api, path, labels=labels, trim=trim, trouble=troubled)
        self._waiting.add(name)
        threading.Thread(target=self._listen, args=(name, changes), daemon=True, name=f"watch {name}").start()
        return changes

    def _listen(self, name: str, changes: Watch) -> None:
        try:
            for change in changes:
                self._news.put(_News(name, change))
        except ApiError as error:
            self._news.put(_News(name, api_errors.translate(error, doing="watch jobs")))
            # Not allowed or not installed: the other sources go on.
            if error.status in (403, 404):
                self._news.put(_News(name, Change("BOOKMARK", {})))
            else:
                self._news.put(_News("", api_errors.translate(error, doing="watch jobs")))

    def _check_server(self) -> None:
        # A watch without events looks the same whether the server is alive or not.
        while not self._closed.wait(_PULSE_SECONDS):
            try:
                self._api.get("/version")
                self._news.put(_News("pulse", None))
            except ApiError as error:
                self._news.put(_News("pulse", api_errors.translate(error, doing="watch jobs")))

    def close(self) -> None:
        """End all watches."""
        self._closed.set()
        for changes in self._watches:
            changes.close()

    # -- changes --------------------------------------------------------------------------------------
    def states(self) -> Iterator[Overseen]:
        """Yield all states, then each change."""
        self._wait_until_listed()
        threading.Thread(target=self._check_server, daemon=True, name="pulse").start()
        while True:
            yield from self._due_states()
            yield Heard(next(iter(self._trouble.values()), None))
            self._apply(self._news.get())
            deadline = time.monotonic() + _BATCH_SECONDS
            while (left := deadline - time.monotonic()) > 0:
                try:
                    self._apply(self._news.get(timeout=left))
                except queue.Empty:
                    break

    def _wait_until_listed(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._waiting:
            try:
                self._apply(self._news.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                raise api_errors.translate(
                    ApiError("the cluster is not responding", reason=api_errors.TIMEOUT), doing="watch jobs"
                ) from None
        refused = [self._trouble.pop(name) for name in self._jobs if name in self._trouble]
        if refused and len(refused) == len(self._jobs):
            raise refused[0]
        self._trouble.clear()

    def _due_states(self) -> Iterator[Overseen]:
        due, self._due = self._due, {}
        for name in due:
            yield from self._current_state(name)

    def _current_state(self, name: Name) -> Iterator[Overseen]:
        keys = self._named.get(name)
        if not keys:
            if (known := self._published.pop(name, None)) is not None:
                yield Gone(known[0])
            return
        key = max(keys, key=lambda key: self._objects[key].rank)
        newest = self._objects[key]
        if not newest.raw:
            # Its final state was yielded.
            return
        state = self._state(key[1], newest)
        # A digest instead of the state: thousands of states would take the memory that this saves.
        mark = blake2b(msgspec.json.encode(state), digest_size=8).digest()
        known = self._published.get(name)
        if known is None or known[1] != mark:
            self._published[name] = (state.ref, mark)
            yield state
        if state.phase.final:
            self._objects[key] = newest._replace(raw=b"")
            self._drop_pods(key[1])

    def _state(self, place: ObjectKey, newest: _Object) -> JobState:
        pods = [msgspec.json.decode(self._pods[pod]) for pod in sorted(self._pods_of.get(place, ()))]
        workload = self._workloads.get((place[0], newest.uid))
        found = None if workload is None else msgspec.json.decode(workload)
        return derive_state.summary(msgspec.json.decode(newest.raw), found, pods)

    def _drop_pods(self, place: ObjectKey) -> None:
        for pod in self._pods_of.pop(place, ()):
            self._pods.pop(pod, None)
            self._place_of.pop(pod, None)

    # -- learning ----------------------------------------------------------------------------------
    def _apply(self, news: _News) -> None:
        source, what = news
        if isinstance(what, MpiJobError):
            if not source:
                raise what
            self._trouble[source] = what
            return
        if what is None:
            self._trouble.pop(source, None)
        elif what.kind == "BOOKMARK":
            self._waiting.discard(source)
        elif what.kind == "RESET":
            return
        elif source == _PODS:
            self._apply_pod(what)
        elif source == _WORKLOADS:
            self._apply_workload(what)
        else:
            self._apply_job(source, what)

    def _apply_job(self, source: str, change: Change) -> None:
        metadata = change.object["metadata"]
        place = (metadata.get("namespace", ""), metadata["name"])
        key = (source, place)
        known = self._objects.get(key)
        if change.kind == "DELETED":
            if known is not None and known.uid == metadata["uid"]:
                self._remove(key, known)
            return
        if known is not None and known.uid == metadata["uid"] and not known.raw:
            # The final state was yielded; its pods are forgotten, so it could not be derived again.
            return
        if known is not None and known.uid != metadata["uid"]:
            self._remove(key, known)
        ref, attempt, owner = identity.of(metadata)
        rank = (str(metadata["creationTimestamp"]), attempt)
        self._objects[key] = known = _Object(ref, owner, rank, metadata["uid"], change.object["raw"])
        name = self._name(source, known)
        self._named.setdefault(name, set()).add(key)
        self._due[name] = None

    def _remove(self, key: tuple[str, ObjectKey], known: _Object) -> None:
        name = self._name(key[0], known)
        del self._objects[key]
        left = self._named[name]
        left.discard(key)
        if not left:
            del self._named[name]
        self._drop_pods(key[1])
        self._due[name] = None

    def _name(self, source: str, known: _Object) -> Name:
        kind, ref = self._jobs[source], known.ref
        return ref.namespace, ref.name, known.owner, kind.name if kind.api == resources.OLDER_API else ""

    def _apply_pod(self, change: Change) -> None:
        metadata = change.object["metadata"]
        labels, pod = metadata.get("labels") or {}, (metadata["namespace"], metadata["name"])
        owner = next((labels[label] for label in _POD_LABELS if label in labels), "")
        place = (metadata["namespace"], owner) if owner else self._place_of.get(pod)
        if place is None:
            return
        found = [key for source in self._jobs if (key := (source, place)) in self._objects]
        if found and not any(self._objects[key].raw for key in found):
            # The final state of its job was yielded.
            return
        if change.kind == "DELETED":
            self._pods.pop(pod, None)
            self._place_of.pop(pod, None)
            self._pods_of.get(place, set()).discard(pod)
        else:
            self._pods[pod], self._place_of[pod] = change.object["raw"], place
            self._pods_of.setdefault(place, set()).add(pod)
        for key in found:
            self._due[self._name(key[0], self._objects[key])] = None

    def _apply_workload(self, change: Change) -> None:
        metadata = change.object["metadata"]
        place = (metadata.get("namespace", ""), metadata["name"])
        owners = [str(owner["uid"]) for owner in metadata.get("ownerReferences") or ()]
        uid = owners[0] if owners else self._owners.get(place, "")
        if change.kind == "DELETED":
            self._owners.pop(place, None)
            self._workloads.pop((place[0], uid), None)
        elif uid:
            self._owners[place], self._workloads[place[0], uid] = uid, change.object["raw"]
        for owner in metadata.get("ownerReferences") or ():
            for source in self._jobs:
                known = self._objects.get((source, (place[0], str(owner.get("name", "")))))
                if known is not None:
                    self._due[self._name(source, known)] = None


def _job_kinds(api: Api, served: frozenset[str]) -> Iterable[Kind]:
    yield from (kind for kind in job_objects.JOB_KINDS if kind.api in served)
    if resources.OLDER_API in served:
        try:
            found = {
                resource["name"]
                for resource in api.get(f"/apis/{resources.OLDER_API}").get("resources") or ()
            }
        except ApiError:
            return
        yield from (kind for kind in resources.OLDER if kind.plural in found)


def _packer(kind: Kind) -> Any:
    """Return a `trim` that keeps the identifying metadata, and the whole object as JSON bytes."""

    def packed(document: Document) -> Document:
        metadata = document.get("metadata") or {}
        # Neither is used, and together they are often more than half of an object.
        metadata.pop("managedFields", None)
        notes = metadata.get("annotations")
        if notes:
            notes.pop("kubectl.kubernetes.io/last-applied-configuration", None)
        whole = {"apiVersion": kind.api, "kind": kind.name, **document}
        return {"metadata": identity.outline(metadata, _KEPT), "raw": msgspec.json.encode(whole)}

    return packed
