"""The runtimes that a cluster has: listed, installed, tried out with a small real job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mpijob.backends.kubernetes.client import api_errors, concurrent, resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.errors import Finding, InvalidJob, NotFound, Severity
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.runtimes import builtin, smoke_test
from mpijob.formats.runtimes.smoke_test import WorldProof
from mpijob.model.spec.enums import choice_hint

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api

_OVER = ("Complete", "Failed")
_POLL_SECONDS = 0.5
_SEEN_LATE_SECONDS = 10.0  # Trainer's webhook looks into a cache that may not know a new runtime yet
_TAIL_LINES = "40"
_SHOWN_LINES = 8


def listed(api: Api, namespace: str) -> tuple[Document, ...]:
    """Return the MPI runtimes that jobs of a namespace may name, the cluster's first; none of one job's own."""
    found = concurrent.together(
        {
            "cluster": lambda: api.list(resources.CLUSTER_RUNTIME.path()),
            "namespace": lambda: api.list(resources.TRAINING_RUNTIME.path(namespace)),
        }
    )
    refused = [one.error for one in found.values() if one.error is not None]
    if len(refused) == len(found):
        raise api_errors.translate(refused[0], doing="list runtimes") from refused[0]
    kinds_ = {"cluster": resources.CLUSTER_RUNTIME, "namespace": resources.TRAINING_RUNTIME}
    whole = [
        {"apiVersion": kind.api, "kind": kind.name} | one
        for key, kind in kinds_.items()
        for one in found[key].items
    ]
    return tuple(one for one in whole if builtin.is_mpi(one) and not builtin.is_of_one_job(one))


def find(api: Api, name: str, namespace: str) -> Document:
    """Return a runtime by name, the namespace's own before the cluster's."""
    known = listed(api, namespace)
    mine = [one for one in known if one["metadata"]["name"] == name]
    if not mine:
        names = [one["metadata"]["name"] for one in known]
        hint = (
            choice_hint(name, names)
            if names
            else "the cluster has no runtime for MPI: mpijob runtimes install"
        )
        raise NotFound(f"no MPI runtime '{name}' on this cluster", hint=hint)
    return mine[-1]


def install(api: Api, document: Document, *, dry_run: bool = False) -> Document:
    """Create a runtime, or bring the one of that name to what the document says."""
    by_kind = {kind.name: kind for kind in (resources.CLUSTER_RUNTIME, resources.TRAINING_RUNTIME)}
    kind = by_kind.get(document.get("kind", ""))
    if kind is None:
        raise InvalidJob(
            f"{document.get('kind')} is not a runtime object: it is a job template",
            hint="print it with `mpijob runtimes show`, or write a job with mpi: mpich or mpi: intel",
        )
    metadata = document["metadata"]
    path = kind.path(metadata.get("namespace", ""), metadata["name"])
    try:
        return api.patch(path, document, form="apply", dry_run=dry_run)
    except ApiError as error:
        raise api_errors.translate(error, doing=f"install runtime {metadata['name']}") from error


def try_out(
    api: Api,
    runtime: Document,
    namespace: str,
    *,
    seconds: float = smoke_test.SECONDS,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Finding]:
    """Run a job of two nodes with the runtime, tell what it proved, and leave nothing behind."""
    name = f"mpijob-trial-{os.urandom(3).hex()}"
    place = runtime["metadata"].get("namespace") or namespace
    path = resources.TRAINJOB.path(place, name)
    try:
        _create(api, smoke_test.document(runtime, name, place), pause)
        try:
            ended = _wait(api, path, seconds, pause)
            yield _verdict(ended, *_seen(api, place, name))
        finally:
            api.delete(path, propagation="Foreground")
    except ApiError as error:
        raise api_errors.translate(error, doing=f"test runtime {runtime['metadata']['name']}") from error


def _create(api: Api, document: Document, pause: Callable[[float], None]) -> None:
    path = resources.TRAINJOB.path(document["metadata"]["namespace"])
    waited = 0.0
    while True:
        try:
            api.create(path, document)
            return
        except ApiError as error:
            if "not found" not in error.message or error.status != 403 or waited >= _SEEN_LATE_SECONDS:
                raise
        pause(_POLL_SECONDS)
        waited += _POLL_SECONDS


def _wait(api: Api, path: str, seconds: float, pause: Callable[[float], None]) -> Document | None:
    """Return the condition with which the trial ended, or None when it did not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = (api.find(path) or {}).get("status") or {}
        for one in status.get("conditions") or ():
            if one.get("type") in _OVER and one.get("status") == "True":
                return dict(one)
        pause(_POLL_SECONDS)
    return None


def _seen(api: Api, namespace: str, name: str) -> tuple[WorldProof, tuple[str, ...]]:
    """Return what the launcher said, and what can be quoted of it or of pods that never ran."""
    pods = api.list(resources.POD.path(namespace), labels=f"jobset.sigs.k8s.io/jobset-name={name}").items
    said, waiting = "", []
    for pod in pods:
        part = (pod["metadata"].get("labels") or {}).get("jobset.sigs.k8s.io/replicatedjob-name")
        if part == "launcher":
            said += _log(api, namespace, pod["metadata"]["name"])
        waiting += [f"{pod['metadata']['name']}: {reason}" for reason in _reasons(pod)]
    tail = [line for line in said.splitlines() if line.strip()][-_SHOWN_LINES:]
    return smoke_test.proof(said), tuple(waiting) + tuple(tail)


def _log(api: Api, namespace: str, pod: str) -> str:
    try:
        path = resources.POD.path(namespace, pod, "log")
        return api.raw(path, accept="*/*", container="node", tailLines=_TAIL_LINES).decode(errors="replace")
    except ApiError:
        return ""  # a container that never started has no log; its reason is told beside


def _reasons(pod: Document) -> Iterator[str]:
    status: Any = pod.get("status") or {}
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            yield str(one.get("message", ""))
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            yield f"{waiting['reason']} {waiting.get('message', '')}".strip()
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            words = ended.get("message") or ended.get("reason") or ""
            yield f"exit {ended['exitCode']} {words}".strip()


def _verdict(ended: Document | None, proof: WorldProof, evidence: tuple[str, ...]) -> Finding:
    ran = f"{proof.ranks} of {proof.wanted} ranks on {len(proof.hosts)} of {proof.hosts_wanted} nodes"
    if ended is not None and ended["type"] == "Complete" and proof.holds:
        return Finding("RUNTIME_OK", f"the test job succeeded: {ran}", severity=Severity.NOTICE)
    if ended is None:
        message, hint = "the test job timed out", "check why its pods are pending"
    elif ended["type"] == "Complete":
        message = f"the test job completed, but with {ran}"
        hint = "run `mpijob runtimes lint`: the launcher may have no hostfile"
    else:
        message = f"the test job failed: {ended.get('message') or ended.get('reason')}"
        hint = "check the log of its launcher, and `mpijob runtimes lint`"
    return Finding("RUNTIME_TRIAL", message, hint, evidence=evidence)
