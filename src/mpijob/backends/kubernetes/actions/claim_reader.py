"""A reader pod from its creation to its removal: what runs in it is `claim_files`' business.

The user's own token creates and deletes it, so whoever may not create pods in the job's namespace reads no claim. It is
deleted after errors, too; one whose creator was killed ends at its deadline, and the next reader of the job removes it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from mpijob.backends.kubernetes.client import exec_stream, resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.submit import owner_references
from mpijob.errors import BackendError
from mpijob.formats.kubernetes import reader_pod, trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status import pod_scheduling, pod_startup
from mpijob.formats.status.events import Events
from mpijob.formats.status.nested_fields import conditions, part, parts, text, time_of
from mpijob.model import MPIJob, Volume, VolumeKind

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.status.job_objects import Found

READ_SECONDS = 3600  # until then everything is read
START_SECONDS = 180.0
_LOOK_SECONDS = 0.25
_SHARED = ("ReadWriteMany", "ReadOnlyMany")
_FINISHED = ("Succeeded", "Failed")


class JobFiles(NamedTuple):
    """A job whose files are read: what was asked for, its objects, and who runs pods that name nobody."""

    job: MPIJob
    found: Found
    runtime: Mapping[str, Any] | None = None
    user: int | None = well_known.PLAIN_USER

    @property
    def claims(self) -> tuple[Volume, ...]:
        """The volume claims to which the job may have written."""
        return tuple(one for one in self.job.volumes if one.kind is VolumeKind.CLAIM and not one.read_only)

    @property
    def submitted(self) -> float:
        """When the job's first attempt was created."""
        first = (*self.found.earlier, self.found.job)[0]
        return time_of(first["metadata"].get("creationTimestamp") or "") or 0.0


class Reader:
    """A reader pod that runs."""

    def __init__(self, api: Api, pod: Mapping[str, Any]) -> None:
        self._api, self._exec = api, _path(pod, "exec")

    @contextmanager
    def output(self, *argv: str) -> Iterator[exec_stream.Output]:
        """Run a command in it, whose output is abandoned where the caller fails."""
        output = exec_stream.Output(self._api, self._exec, argv, container=reader_pod.CONTAINER)
        try:
            yield output
        except BaseException:
            output.abandon()
            raise


@contextmanager
def reader(api: Api, files: JobFiles, seconds: int = READ_SECONDS) -> Iterator[Reader]:
    """Run a reader pod of the job's claims; it is gone, or going, when the caller is done."""
    _sweep(api, files.job)
    pod = _document(api, files, seconds)
    try:
        api.create(resources.POD.path(files.job.namespace), pod)
        _wait(api, pod)
        yield Reader(api, pod)
    finally:  # also where the answer to its creation was lost: no other pod has its name
        _remove(api, pod)


def _document(api: Api, files: JobFiles, seconds: int) -> Document:
    return reader_pod.document(
        files.job,
        files.claims,
        suffix=secrets.token_hex(4),
        seconds=seconds,
        owner=owner_references.reference(files.found.job),
        security=_security(files),
        user=files.user,
        node=_node(api, files),
    )


def _security(files: JobFiles) -> Mapping[str, Any]:
    """Return the security context of the job's workers, as which they wrote."""
    if files.found.kind is resources.TRAINJOB:
        template = trainjob.pod_templates(files.runtime).get("node") or {}
    else:
        template = part(files.found.job, "spec", "mpiReplicaSpecs", "Worker", "template")
    return part(template, "spec", "securityContext")


def _node(api: Api, files: JobFiles) -> str:
    """Return the machine whose pods hold a claim that only one machine mounts at a time."""
    namespace = files.job.namespace
    alone = {one.source for one in files.claims if not _is_shared(api, namespace, one.source)}
    if not alone:
        return ""
    with suppress(ApiError):  # who may not list pods is placed by the scheduler
        for pod in api.list(resources.POD.path(namespace)).items:
            node = text(pod, "spec", "nodeName")
            if node and text(pod, "status", "phase") not in _FINISHED and alone & _claims_of(pod):
                return node
    return ""


def _is_shared(api: Api, namespace: str, claim: str) -> bool:
    try:
        found = api.find(resources.CLAIM.path(namespace, claim))
    except ApiError:
        return True  # not for this user to see
    modes = ((found or {}).get("spec") or {}).get("accessModes") or _SHARED
    return any(mode in _SHARED for mode in modes)


def _claims_of(pod: Mapping[str, Any]) -> set[str]:
    return {text(one, "persistentVolumeClaim", "claimName") for one in parts(pod, "spec", "volumes")}


def _wait(api: Api, pod: Mapping[str, Any]) -> None:
    """Wait until the pod runs; raise with what keeps it from running."""
    path = _path(pod)
    deadline = time.monotonic() + START_SECONDS
    while True:
        pod = api.get(path)
        phase = text(pod, "status", "phase")
        if phase == "Running":
            return
        if phase in _FINISHED:
            raise _unread(
                pod, text(pod, "status", "message") or "its image has no /bin/sh or sleep", hint=_IMAGE_HINT
            )
        if time.monotonic() > deadline:
            raise _unread(pod, f"it is not running after {START_SECONDS:g} s: {_reason(api, pod)}")
        time.sleep(_LOOK_SECONDS)


_IMAGE_HINT = "the job's image needs sh, sleep, find, stat and tar; otherwise let another job copy the files"


def _unread(pod: Mapping[str, Any], why: str, hint: str = "") -> BackendError:
    return BackendError(
        f"the claims of {text(pod, 'metadata', 'labels', well_known.READER_LABEL)} cannot be read through "
        f"pod {text(pod, 'metadata', 'name')}: {why}",
        hint=hint
        or "try again when the cluster has free capacity; a running job may hold a ReadWriteOnce claim on one node",
    )


def _reason(api: Api, pod: Mapping[str, Any]) -> str:
    scheduled = conditions(pod).get("PodScheduled") or {}
    if not text(pod, "spec", "nodeName"):
        return pod_scheduling.obstacle(text(scheduled, "message"), {}, None).text or "it is not scheduled"
    name = text(pod, "metadata", "name")
    told: list[Document] = []
    with suppress(ApiError):
        about = f"involvedObject.name={name}"
        told = api.list(resources.EVENT.path(text(pod, "metadata", "namespace")), fields=about).items
    return pod_startup.obstacle(pod, Events(told).of("Pod", name)).text


def _sweep(api: Api, job: MPIJob) -> None:
    """Remove readers of the job that have ended and whose creators were killed before they could."""
    with suppress(ApiError):  # they cost nothing, and go with the job
        labels = f"{well_known.READER_LABEL}={job.name}"
        for pod in api.list(resources.POD.path(job.namespace), labels=labels).items:
            if text(pod, "status", "phase") in _FINISHED:
                _remove(api, pod)


def _remove(api: Api, pod: Mapping[str, Any]) -> None:
    with suppress(ApiError):  # it ends at its deadline
        api.delete(_path(pod), grace_seconds=0)


def _path(pod: Mapping[str, Any], sub: str = "") -> str:
    return resources.POD.path(pod["metadata"]["namespace"], pod["metadata"]["name"], sub)
