"""The runtimes of a cluster: listed, installed, and tested with a small job."""

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
# Trainer's webhook reads runtimes from a cache that may not have a new one yet.
_CACHE_SECONDS = 10.0
_LOG_LINES = "40"
_SHOWN_LINES = 8


def list_runtimes(api: Api, namespace: str) -> tuple[Document, ...]:
    """Return the MPI runtimes that jobs of a namespace can use, the cluster's first, without those of single jobs."""
    found = concurrent.together(
        {
            "cluster": lambda: api.list(resources.CLUSTER_RUNTIME.path()),
            "namespace": lambda: api.list(resources.TRAINING_RUNTIME.path(namespace)),
        }
    )
    refused = [result.error for result in found.values() if result.error is not None]
    if len(refused) == len(found):
        raise api_errors.translate(refused[0], doing="list runtimes") from refused[0]
    kinds = {"cluster": resources.CLUSTER_RUNTIME, "namespace": resources.TRAINING_RUNTIME}
    runtimes = [
        {"apiVersion": kind.api, "kind": kind.name} | runtime
        for key, kind in kinds.items()
        for runtime in found[key].items
    ]
    return tuple(
        runtime for runtime in runtimes if builtin.is_mpi(runtime) and not builtin.is_of_one_job(runtime)
    )


def find(api: Api, name: str, namespace: str) -> Document:
    """Return a runtime by name, the namespace's own before the cluster's; raise NotFound."""
    known = list_runtimes(api, namespace)
    mine = [runtime for runtime in known if runtime["metadata"]["name"] == name]
    if not mine:
        names = [runtime["metadata"]["name"] for runtime in known]
        hint = (
            choice_hint(name, names)
            if names
            else "the cluster has no runtime for MPI: mpijob runtimes install"
        )
        raise NotFound(f"no MPI runtime '{name}' on this cluster", hint=hint)
    return mine[-1]


def install(api: Api, document: Document, *, dry_run: bool = False) -> Document:
    """Create or change a runtime as the document says."""
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


def run_test(
    api: Api,
    runtime: Document,
    namespace: str,
    *,
    seconds: float = smoke_test.SECONDS,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Finding]:
    """Run a job of two nodes with the runtime, yield the result, and delete the job."""
    name = f"mpijob-trial-{os.urandom(3).hex()}"
    place = runtime["metadata"].get("namespace") or namespace
    path = resources.TRAINJOB.path(place, name)
    try:
        _create(api, smoke_test.document(runtime, name, place), pause)
        try:
            condition = _wait(api, path, seconds, pause)
            yield _verdict(condition, *_read_proof(api, place, name))
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
            if "not found" not in error.message or error.status != 403 or waited >= _CACHE_SECONDS:
                raise
        pause(_POLL_SECONDS)
        waited += _POLL_SECONDS


def _wait(api: Api, path: str, seconds: float, pause: Callable[[float], None]) -> Document | None:
    """Return the condition with which the test job ended; None after the timeout."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = (api.find(path) or {}).get("status") or {}
        for condition in status.get("conditions") or ():
            if condition.get("type") in _OVER and condition.get("status") == "True":
                return dict(condition)
        pause(_POLL_SECONDS)
    return None


def _read_proof(api: Api, namespace: str, name: str) -> tuple[WorldProof, tuple[str, ...]]:
    """Return the launcher's proof, and lines to quote: of its log, or why pods do not run."""
    pods = api.list(resources.POD.path(namespace), labels=f"jobset.sigs.k8s.io/jobset-name={name}").items
    log, waiting = "", []
    for pod in pods:
        part = (pod["metadata"].get("labels") or {}).get("jobset.sigs.k8s.io/replicatedjob-name")
        if part == "launcher":
            log += _log(api, namespace, pod["metadata"]["name"])
        waiting += [f"{pod['metadata']['name']}: {reason}" for reason in _reasons(pod)]
    tail = [line for line in log.splitlines() if line.strip()][-_SHOWN_LINES:]
    return smoke_test.proof(log), tuple(waiting) + tuple(tail)


def _log(api: Api, namespace: str, pod: str) -> str:
    try:
        path = resources.POD.path(namespace, pod, "log")
        return api.raw(path, accept="*/*", container="node", tailLines=_LOG_LINES).decode(errors="replace")
    except ApiError:
        # A container that never started has no log; its reason is reported besides.
        return ""


def _reasons(pod: Document) -> Iterator[str]:
    status: Any = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield str(condition.get("message", ""))
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            yield f"{waiting['reason']} {waiting.get('message', '')}".strip()
        condition = (container.get("state") or {}).get("terminated") or {}
        if condition.get("exitCode"):
            text = condition.get("message") or condition.get("reason") or ""
            yield f"exit {condition['exitCode']} {text}".strip()


def _verdict(condition: Document | None, proof: WorldProof, evidence: tuple[str, ...]) -> Finding:
    ran = f"{proof.ranks} of {proof.wanted} ranks on {len(proof.hosts)} of {proof.hosts_wanted} nodes"
    if condition is not None and condition["type"] == "Complete" and proof.holds:
        return Finding("RUNTIME_OK", f"the test job succeeded: {ran}", severity=Severity.NOTICE)
    if condition is None:
        message, hint = "the test job timed out", "check why its pods are pending"
    elif condition["type"] == "Complete":
        message = f"the test job completed, but with {ran}"
        hint = "run `mpijob runtimes lint`: the launcher may have no hostfile"
    else:
        message = f"the test job failed: {condition.get('message') or condition.get('reason')}"
        hint = "check the log of its launcher, and `mpijob runtimes lint`"
    return Finding("RUNTIME_TRIAL", message, hint, evidence=evidence)
