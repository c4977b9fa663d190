"""Stores a snapshot of a job: its state, its events, facts of its pods and their nodes.

The same snapshot shows which pods' logs can be recorded; `log_capture` records them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.logs import pod_logs
from mpijob.backends.kubernetes.metrics import pod_usage
from mpijob.backends.kubernetes.metrics.prometheus_query import Prometheus
from mpijob.backends.kubernetes.recorder.log_capture import ContainerRun, restarts_of
from mpijob.backends.kubernetes.status import derive_state, job_objects, timeline
from mpijob.backends.kubernetes.status.attempts import richer
from mpijob.backends.kubernetes.status.derive_state import Document
from mpijob.backends.kubernetes.status.job_reader import JobReader, JobSnapshot
from mpijob.errors import MpiJobError
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.history.archive import Archive
from mpijob.history.audit import audit_log, job_end
from mpijob.history.records import Fact
from mpijob.model import JobKey, JobRef, JobState, Phase

_log = logging.getLogger(__name__)
_NODE_LABELS = (
    "node.kubernetes.io/instance-type",
    well_known.ZONE_LABEL,
    *well_known.RACK_LABELS,
    "topology.kubernetes.io/region",
    "nvidia.com/gpu.product",
)


class SnapshotWriter:
    """Stores jobs; remembers the jobs whose specification, and the nodes whose facts, are stored already."""

    def __init__(
        self, api: Api, reader: JobReader, archive: Archive, prometheus: Prometheus | None = None
    ) -> None:
        self._prometheus = prometheus
        self._api = api
        self._reader = reader
        self._archive = archive
        self._specs: set[tuple[JobKey, int]] = set()
        self._nodes: dict[str, Fact | None] = {}

    def write(self, ref: JobRef) -> tuple[JobState, list[ContainerRun], list[str]]:
        """Store a job's state; return it, the runs whose logs can be recorded, and the names of the job's objects.

        Raise NotFound.
        """
        snapshot, now = self._reader.read(ref), time.time()
        known = (snapshot.found.ref.key, job_objects.attempt_of(snapshot.found.job))
        facts = [*self._pod_facts(snapshot, now)]
        spec = b""
        if known not in self._specs:
            spec = self._spec(snapshot)
            facts += _documents(snapshot, now)
        events = timeline.numbered(timeline.events(snapshot.seen, snapshot.own, snapshot.proved))
        before = self._archive.state(snapshot.state.ref.key)
        state = snapshot.state if before is None else richer(before, snapshot.state)
        self._store_attempts(snapshot, before)
        self._archive.put_job(
            state, now=now, spec=spec, events=events, facts=facts, unique_reasons=timeline.ONCE
        )
        if state.phase is Phase.RUNNING:
            self._store_usage(snapshot)
        self._specs.add(known)
        if state.phase.final and (before is None or not before.phase.final):
            self._audit_end(state)
        names = [item["metadata"]["name"] for item in (*snapshot.found.earlier, snapshot.found.job)]
        return state, [*self._runs(snapshot)], names

    def _store_attempts(self, snapshot: JobSnapshot, before: JobState | None) -> None:
        if before is not None and before.attempt < snapshot.state.attempt:
            self._store_attempt(before)
        if snapshot.ended is not None:
            self._store_attempt(snapshot.ended)
        known = (
            {state.attempt for state in self._archive.attempts(snapshot.found.ref.key)}
            if snapshot.found.earlier
            else set()
        )
        # Attempts that ended between two snapshots, or before the recorder was installed.
        for found in snapshot.found.attempts:
            if job_objects.attempt_of(found.job) not in known:
                self._store_attempt(self._reader.attempt_of(found).state)

    def _store_attempt(self, state: JobState) -> None:
        if not state.phase.final and state.phase is not Phase.SUSPENDED:
            # Its end was not observed, or was stored when it was.
            return
        known = next(
            (known for known in self._archive.attempts(state.ref.key) if known.attempt == state.attempt), None
        )
        self._archive.put_attempt(state if known is None else richer(known, state))

    def forget(self, key: JobKey) -> None:
        """Forget a deleted job; its record is not affected."""
        self._specs -= {known for known in self._specs if known[0] == key}

    def _audit_end(self, state: JobState) -> None:
        """Write a job's last audit entry: how it ended, and its resource use."""
        directory = audit_log.audit_path(self._archive.directory)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        job = self._archive.spec(state.ref.key)
        job_end.write_job_end(directory, state, job, user="system:mpijob:recorder")

    def _store_usage(self, snapshot: JobSnapshot) -> None:
        # A record without usage is better than none: not every cluster has a metrics API.
        try:
            found = pod_usage.samples(self._api, snapshot.found, self._reader.served, self._prometheus)
        except ApiError as error:
            _log.debug("cannot read the usage of %s: %s", snapshot.found.ref, error)
            return
        if found:
            self._archive.add_samples(snapshot.state.ref.key, found)

    def _spec(self, snapshot: JobSnapshot) -> bytes:
        try:
            return msgspec.json.encode(
                self._reader.spec(snapshot.found, snapshot.seen.runtime).replace(owner="")
            )
        except MpiJobError:
            # An object of another tool, with fields that ours do not have; the document is stored.
            return b""

    def store_pod(self, key: JobKey, pod: Document) -> None:
        """Store the last status of a deleted pod."""
        self._archive.add_facts(key, [_pod(pod, time.time())])

    # -- facts ------------------------------------------------------------------------------------
    def _pod_facts(self, snapshot: JobSnapshot, now: float) -> Iterator[Fact]:
        for pod in snapshot.seen.pods:
            yield _pod(pod, now)
            if node := self._node((pod.get("spec") or {}).get("nodeName") or "", now):
                yield node

    def _node(self, name: str, now: float) -> Fact | None:
        if name and name not in self._nodes:
            try:
                found = self._api.find(resources.NODE.path("", name))
            except ApiError:
                # The recorder may not be allowed to read nodes.
                found = None
            self._nodes[name] = None if found is None else Fact("node", name, now, node_fact(found))
        return self._nodes.get(name)

    # -- voices -----------------------------------------------------------------------------------
    def _runs(self, snapshot: JobSnapshot) -> Iterator[ContainerRun]:
        found = snapshot.found
        for job in found.earlier:
            if (found.ref.key, job_objects.attempt_of(job)) not in self._specs:
                yield from _runs_of(job, job_objects.pods(self._api, found.kind, job))
                self._specs.add((found.ref.key, job_objects.attempt_of(job)))
        yield from _runs_of(found.job, snapshot.seen.pods)


def _runs_of(job: Document, pods: Any) -> Iterator[ContainerRun]:
    family, tagged = derive_state.speech(job)
    for pod in pods:
        for source in pod_logs.log_sources(
            [pod],
            attempt=job_objects.attempt_of(job),
            family=family,
            tagged=tagged,
            index_of=derive_state.worker_index,
        ):
            restarts = restarts_of(pod, source.container)
            # The kubelet keeps the log of the previous run.
            for number in range(max(0, restarts - 1), restarts + 1):
                yield ContainerRun(source, pod["metadata"]["uid"], number)


def _pod(pod: Document, now: float) -> Fact:
    return Fact("pod", f"{pod['metadata']['name']}.{pod['metadata']['uid']}", now, pod_fact(pod))


def _documents(snapshot: JobSnapshot, now: float) -> Iterator[Fact]:
    for document in (snapshot.found.job, snapshot.seen.runtime):
        if document is not None:
            metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
            name = f"{document.get('kind', 'runtime')}/{metadata['name']}"
            yield Fact("document", name, now, {**document, "metadata": metadata})


def pod_fact(pod: Document) -> dict[str, Any]:
    """Return the stored facts of a pod: its node, how its containers ended, and why."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    kept = ("phase", "reason", "message", "podIP", "hostIP", "qosClass", "startTime")
    return {
        "name": metadata["name"],
        "role": pod_logs.role_of(pod).value,
        "node": (pod.get("spec") or {}).get("nodeName") or "",
        "deleted": metadata.get("deletionTimestamp") or "",
        **{key: status[key] for key in kept if status.get(key)},
        "conditions": [
            {key: condition[key] for key in ("type", "status", "reason", "message") if condition.get(key)}
            for condition in status.get("conditions") or ()
        ],
        "containers": [
            {
                key: container.get(key)
                for key in ("name", "image", "imageID", "restartCount", "state", "lastState")
            }
            for container in status.get("containerStatuses") or ()
        ],
    }


def node_fact(node: Document) -> dict[str, Any]:
    """Return the stored facts of a node: its kind of machine and its capacity."""
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    info = status.get("nodeInfo") or {}
    return {
        "labels": {key: labels[key] for key in _NODE_LABELS if key in labels},
        "allocatable": status.get("allocatable") or {},
        **{
            key: info[key]
            for key in ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion")
            if key in info
        },
    }
