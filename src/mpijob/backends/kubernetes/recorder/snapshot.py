"""Writing down one look at a job: where it stands, what happened, facts of its pods and their nodes.

Whose logs are to be heard is told from the same look; hearing them is the business of `log_capture`.
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
    """Writes jobs down; it remembers of which the spec and of which nodes the facts are there already."""

    def __init__(
        self, api: Api, eye: JobReader, archive: Archive, prometheus: Prometheus | None = None
    ) -> None:
        self._prometheus = prometheus
        self._api = api
        self._reader = eye
        self._archive = archive
        self._specs: set[tuple[JobKey, int]] = set()
        self._nodes: dict[str, Fact | None] = {}

    def write(self, ref: JobRef) -> tuple[JobState, list[ContainerRun], list[str]]:
        """Write down where a job stands now; return that, whose logs can be heard, and the names of its objects.

        Raise NotFound.
        """
        look, now = self._reader.read(ref), time.time()
        known = (look.found.ref.key, job_objects.attempt_of(look.found.job))
        facts = [*self._pod_facts(look, now)]
        spec = b""
        if known not in self._specs:
            spec = self._spec(look)
            facts += _documents(look, now)
        told = timeline.numbered(timeline.events(look.seen, look.own, look.proved))
        before = self._archive.state(look.state.ref.key)
        state = look.state if before is None else richer(before, look.state)
        self._keep_attempts(look, before)
        self._archive.put_job(
            state, now=now, spec=spec, events=told, facts=facts, unique_reasons=timeline.ONCE
        )
        if state.phase is Phase.RUNNING:
            self._measure(look)
        self._specs.add(known)
        if state.phase.final and (before is None or not before.phase.final):
            self._tell_audit(state)
        names = [one["metadata"]["name"] for one in (*look.found.earlier, look.found.job)]
        return state, [*self._lives(look)], names

    def _keep_attempts(self, look: JobSnapshot, before: JobState | None) -> None:
        """Write down how attempts ended that have a next one, or will have."""
        if before is not None and before.attempt < look.state.attempt:
            self._keep_attempt(before)
        if look.ended is not None:
            self._keep_attempt(look.ended)
        known = (
            {one.attempt for one in self._archive.attempts(look.found.ref.key)}
            if look.found.earlier
            else set()
        )
        for (
            found
        ) in look.found.attempts:  # of a retry that came between two looks, or before there was a recorder
            if job_objects.attempt_of(found.job) not in known:
                self._keep_attempt(self._reader.attempt_of(found).state)

    def _keep_attempt(self, state: JobState) -> None:
        """Write down how an attempt ended; what was seen of it while it had its pods stays."""
        if not state.phase.final and state.phase is not Phase.SUSPENDED:
            return  # its end was not observed, or was written down when it was
        known = next(
            (one for one in self._archive.attempts(state.ref.key) if one.attempt == state.attempt), None
        )
        self._archive.put_attempt(state if known is None else richer(known, state))

    def forget(self, key: JobKey) -> None:
        """Remember nothing of a job that is gone: what was written down of it is in the record."""
        self._specs -= {one for one in self._specs if one[0] == key}

    def _tell_audit(self, state: JobState) -> None:
        """Write the last entry of a job: how it ended and what it has taken."""
        directory = audit_log.audit_path(self._archive.directory)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        job = self._archive.spec(state.ref.key)
        job_end.write_job_end(directory, state, job, user="system:mpijob:recorder")

    def _measure(self, look: JobSnapshot) -> None:
        """Write down what the workers use now, where the cluster measures it; a record does without."""
        try:
            found = pod_usage.samples(self._api, look.found, self._reader.served, self._prometheus)
        except ApiError as error:
            _log.debug("cannot read the usage of %s: %s", look.found.ref, error)
            return
        if found:
            self._archive.add_samples(look.state.ref.key, found)

    def _spec(self, look: JobSnapshot) -> bytes:
        try:
            return msgspec.json.encode(self._reader.spec(look.found, look.seen.runtime).replace(owner=""))
        except MpiJobError:  # somebody else's object, in words that ours do not have; the document is kept
            return b""

    def keep(self, key: JobKey, pod: Document) -> None:
        """Write down a pod as it was when it went."""
        self._archive.add_facts(key, [_pod(pod, time.time())])

    # -- facts ------------------------------------------------------------------------------------
    def _pod_facts(self, look: JobSnapshot, now: float) -> Iterator[Fact]:
        for pod in look.seen.pods:
            yield _pod(pod, now)
            if node := self._node((pod.get("spec") or {}).get("nodeName") or "", now):
                yield node

    def _node(self, name: str, now: float) -> Fact | None:
        if name and name not in self._nodes:
            try:
                found = self._api.find(resources.NODE.path("", name))
            except ApiError:  # nodes may not be everybody's to see
                found = None
            self._nodes[name] = None if found is None else Fact("node", name, now, node_fact(found))
        return self._nodes.get(name)

    # -- voices -----------------------------------------------------------------------------------
    def _lives(self, look: JobSnapshot) -> Iterator[ContainerRun]:
        found = look.found
        for job in found.earlier:
            if (found.ref.key, job_objects.attempt_of(job)) not in self._specs:
                yield from _lives_of(job, job_objects.pods(self._api, found.kind, job))
                self._specs.add((found.ref.key, job_objects.attempt_of(job)))
        yield from _lives_of(found.job, look.seen.pods)


def _lives_of(job: Document, pods: Any) -> Iterator[ContainerRun]:
    family, tagged = derive_state.speech(job)
    for pod in pods:
        for voice in pod_logs.log_sources(
            [pod],
            attempt=job_objects.attempt_of(job),
            family=family,
            tagged=tagged,
            index_of=derive_state.worker_index,
        ):
            restarts = restarts_of(pod, voice.container)
            for life in range(
                max(0, restarts - 1), restarts + 1
            ):  # a cluster keeps the log of the life before
                yield ContainerRun(voice, pod["metadata"]["uid"], life)


def _pod(pod: Document, now: float) -> Fact:
    return Fact("pod", f"{pod['metadata']['name']}.{pod['metadata']['uid']}", now, pod_fact(pod))


def _documents(look: JobSnapshot, now: float) -> Iterator[Fact]:
    for document in (look.found.job, look.seen.runtime):
        if document is not None:
            metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
            name = f"{document.get('kind', 'runtime')}/{metadata['name']}"
            yield Fact("document", name, now, {**document, "metadata": metadata})


def pod_fact(pod: Document) -> dict[str, Any]:
    """Return what is kept of a pod: where it was, how its containers ended, and why."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    kept = ("phase", "reason", "message", "podIP", "hostIP", "qosClass", "startTime")
    return {
        "name": metadata["name"],
        "role": pod_logs.role_of(pod).value,
        "node": (pod.get("spec") or {}).get("nodeName") or "",
        "deleted": metadata.get("deletionTimestamp") or "",
        **{key: status[key] for key in kept if status.get(key)},
        "conditions": [
            {key: one[key] for key in ("type", "status", "reason", "message") if one.get(key)}
            for one in status.get("conditions") or ()
        ],
        "containers": [
            {key: one.get(key) for key in ("name", "image", "imageID", "restartCount", "state", "lastState")}
            for one in status.get("containerStatuses") or ()
        ],
    }


def node_fact(node: Document) -> dict[str, Any]:
    """Return what is kept of a node: what kind of machine it is, and what it can give."""
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
