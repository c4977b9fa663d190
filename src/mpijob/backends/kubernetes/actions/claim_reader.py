"""A reader pod for a job's volume claims, from its creation to its deletion; `claim_files` runs commands in
it.

It is created and deleted with the user's own token, so a user who may not create pods in the job's namespace
reads no claim. It is deleted after errors, too; one whose creator was killed ends at its deadline, and the
next reader of the job deletes it.
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

# The deadline of the pod.
READ_SECONDS = 3600
START_SECONDS = 180.0
_POLL_SECONDS = 0.25
_SHARED = ("ReadWriteMany", "ReadOnlyMany")
_FINISHED = ("Succeeded", "Failed")


class JobFiles(NamedTuple):
    """A job whose files are read: specification, objects, and the user ID for pods that set none."""

    job: MPIJob
    found: Found
    runtime: Mapping[str, Any] | None = None
    user: int | None = well_known.PLAIN_USER

    @property
    def claims(self) -> tuple[Volume, ...]:
        """The volume claims to which the job may have written."""
        return tuple(
            volume for volume in self.job.volumes if volume.kind is VolumeKind.CLAIM and not volume.read_only
        )

    @property
    def submitted(self) -> float:
        """When the job's first attempt was created, in seconds since 1970."""
        first = (*self.found.earlier, self.found.job)[0]
        return time_of(first["metadata"].get("creationTimestamp") or "") or 0.0


class Reader:
    """A running reader pod."""

    def __init__(self, api: Api, pod: Mapping[str, Any]) -> None:
        self._api, self._exec = api, _path(pod, "exec")

    @contextmanager
    def output(self, *argv: str) -> Iterator[exec_stream.Output]:
        """Run a command in the pod; its output is abandoned if the caller fails."""
        output = exec_stream.Output(self._api, self._exec, argv, container=reader_pod.CONTAINER)
        try:
            yield output
        except BaseException:
            output.abandon()
            raise


@contextmanager
def reader(api: Api, files: JobFiles, seconds: int = READ_SECONDS) -> Iterator[Reader]:
    """Run a reader pod of the job's claims, which is deleted at the end."""
    _delete_ended_readers(api, files.job)
    pod = _document(api, files, seconds)
    try:
        api.create(resources.POD.path(files.job.namespace), pod)
        _wait(api, pod)
        yield Reader(api, pod)
    finally:
        # Also if the response to its creation was lost: no other pod has its name.
        _delete(api, pod)


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
    # That of the job's workers: their files may be readable for that user only.
    if files.found.kind is resources.TRAINJOB:
        template = trainjob.pod_templates(files.runtime).get("node") or {}
    else:
        template = part(files.found.job, "spec", "mpiReplicaSpecs", "Worker", "template")
    return part(template, "spec", "securityContext")


def _node(api: Api, files: JobFiles) -> str:
    # The node whose pods use a ReadWriteOnce claim, which only one node can mount at a time.
    namespace = files.job.namespace
    exclusive = {volume.source for volume in files.claims if not _is_shared(api, namespace, volume.source)}
    if not exclusive:
        return ""
    # For a user who may not list pods, the scheduler chooses the node.
    with suppress(ApiError):
        for pod in api.list(resources.POD.path(namespace)).items:
            node = text(pod, "spec", "nodeName")
            if node and text(pod, "status", "phase") not in _FINISHED and exclusive & _claims_of(pod):
                return node
    return ""


def _is_shared(api: Api, namespace: str, claim: str) -> bool:
    try:
        found = api.find(resources.CLAIM.path(namespace, claim))
    except ApiError:
        # The user may not read the claim.
        return True
    modes = ((found or {}).get("spec") or {}).get("accessModes") or _SHARED
    return any(mode in _SHARED for mode in modes)


def _claims_of(pod: Mapping[str, Any]) -> set[str]:
    return {text(volume, "persistentVolumeClaim", "claimName") for volume in parts(pod, "spec", "volumes")}


def _wait(api: Api, pod: Mapping[str, Any]) -> None:
    """Wait until the pod runs; raise BackendError with the reason if it does not."""
    path = _path(pod)
    deadline = time.monotonic() + START_SECONDS
    while True:
        pod = api.get(path)
        phase = text(pod, "status", "phase")
        if phase == "Running":
            return
        if phase in _FINISHED:
            raise _reader_failed(
                pod, text(pod, "status", "message") or "its image has no /bin/sh or sleep", hint=_IMAGE_HINT
            )
        if time.monotonic() > deadline:
            raise _reader_failed(pod, f"it is not running after {START_SECONDS:g} s: {_reason(api, pod)}")
        time.sleep(_POLL_SECONDS)


_IMAGE_HINT = "the job's image needs sh, sleep, find, stat and tar; otherwise let another job copy the files"


def _reader_failed(pod: Mapping[str, Any], why: str, hint: str = "") -> BackendError:
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
    events: list[Document] = []
    with suppress(ApiError):
        about = f"involvedObject.name={name}"
        events = api.list(resources.EVENT.path(text(pod, "metadata", "namespace")), fields=about).items
    return pod_startup.obstacle(pod, Events(events).of("Pod", name)).text


def _delete_ended_readers(api: Api, job: MPIJob) -> None:
    # Pods of creators that were killed.
    # Ended pods use no resources, and are deleted with the job.
    with suppress(ApiError):
        labels = f"{well_known.READER_LABEL}={job.name}"
        for pod in api.list(resources.POD.path(job.namespace), labels=labels).items:
            if text(pod, "status", "phase") in _FINISHED:
                _delete(api, pod)


def _delete(api: Api, pod: Mapping[str, Any]) -> None:
    # It ends at its deadline anyway.
    with suppress(ApiError):
        api.delete(_path(pod), grace_seconds=0)


def _path(pod: Mapping[str, Any], sub: str = "") -> str:
    return resources.POD.path(pod["metadata"]["namespace"], pod["metadata"]["name"], sub)
