"""Creates the objects of a job: idempotent, and all or nothing.

The runtime (and uploaded files) first, because the engine's webhook requires it; then the job, which becomes
the owner of the rest (`owner_references`). Races are decided by names: the API server lets one of two
creators win. An object with our uid was created by us, even if the response was lost; but all attempts of a
job share a uid, so objects of an attempt that another process started are never rolled back.
"""

from __future__ import annotations

import base64
import gzip
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mpijob.backends import secrets
from mpijob.backends.kubernetes.client import api_errors, resources
from mpijob.backends.kubernetes.client.api import JSON, PARTIAL, Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.status.job_objects import JOB_KINDS
from mpijob.backends.kubernetes.submit import code_archive, owner_references
from mpijob.backends.profiler import library as profiler
from mpijob.errors import BackendError, MpiJobError
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status.nested_fields import time_of
from mpijob.model import MPIJob, Plan

ABANDONED_SECONDS = 60.0
# An informer of the webhook usually sees a new runtime within milliseconds.
_PAUSES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0)
# Errors of connections to a pod that was deleted.
_PEER_GONE = ("connection refused", "connection reset", "no endpoints available", "no route to host", "EOF")
_CREATED = (
    resources.TRAINJOB,
    resources.TRAINING_RUNTIME,
    resources.MPIJOB,
    resources.NETWORK_POLICY,
    resources.CONFIG_MAP,
    resources.SECRET,
)
_KINDS = {kind.name: kind for kind in _CREATED}


class Taken(Exception):
    """An object of this name exists and is not ours."""

    def __init__(self, existing: Document) -> None:
        super().__init__(existing["metadata"]["name"])
        self.existing = existing


# The objects that a call created, by path: their uids, or "" if the response was lost.
Attempts = dict[str, str]


class Created(NamedTuple):
    """The engine's job object, and a function that waits until the job owns all its objects."""

    job: Document
    owned: Callable[[], None]


def submit(api: Api, plan: Plan, home: Path | None = None) -> Created:
    """Create all objects; raise Taken for a name that is in use.

    `home` is where a shim that counts MPI calls is compiled if the wheel has none.
    """
    attempts: Attempts = {}
    try:
        return _create_all(api, everything(plan, home), plan.uid, attempts)
    except BaseException:
        # Also for KeyboardInterrupt: all objects, or none.
        _undo(api, attempts, plan.uid)
        raise


def everything(plan: Plan, home: Path | None = None) -> list[Mapping[str, Any]]:
    """Return all objects of a job, the job itself last."""
    # The runtime is first, so that the webhook's informer has the time of the other requests to see it.
    return [*plan.documents[:-1], *_files(plan), *_profiler(plan, home), *_secrets(plan), plan.documents[-1]]


def create_attempt(api: Api, documents: Sequence[Mapping[str, Any]], uid: str) -> Document:
    """Return a further attempt, which shares files and secrets with the first; it may exist already."""
    attempts: Attempts = {}
    try:
        created = _create_all(api, documents, uid, attempts)
    except MpiJobError:
        if (existing := _find_existing(api, documents[-1], uid, attempts)) is None:
            raise
        # For example a quota is exceeded, because another client was faster.
        return existing
    except BaseException:
        _find_existing(api, documents[-1], uid, attempts)
        raise
    created.owned()
    return created.job


def _create_all(api: Api, documents: Sequence[Mapping[str, Any]], uid: str, attempts: Attempts) -> Created:
    """Create all objects, the job last, and make it the owner of the others."""
    others, owner = documents[:-1], list[Document]()
    for document in others:
        created = _create(api, _with_owner(document, owner), uid, attempts)
        if kind_of(document) is resources.TRAINING_RUNTIME:
            owner = [
                owner_references.reference(
                    {**created, "apiVersion": document["apiVersion"], "kind": document["kind"]}
                )
            ]
    created = _create(api, documents[-1], uid, attempts)
    return Created(created, owner_references.adopt(api, created, [_path(document) for document in others]))


def _with_owner(document: Mapping[str, Any], owner: list[Document]) -> Mapping[str, Any]:
    # Owned by the runtime until the job exists: if this process is killed in between, deleting the runtime is enough.
    if not owner:
        return document
    return {**document, "metadata": {**document["metadata"], "ownerReferences": owner}}


def _find_existing(api: Api, job: Mapping[str, Any], uid: str, attempts: Attempts) -> Document | None:
    try:
        there = api.find(_path(job))
    except ApiError:
        # It may exist; the client that starts the attempt next uses the remaining objects.
        return None
    if there is None:
        _undo(api, {path: created for path, created in attempts.items() if created}, uid)
    return there if there is not None and _uid(there) == uid else None


def kind_of(document: Mapping[str, Any]) -> Kind:
    """Return the kind of an object of a job."""
    return _KINDS[document["kind"]]


def _path(document: Mapping[str, Any]) -> str:
    return kind_of(document).path(document["metadata"]["namespace"], document["metadata"]["name"])


def _create(api: Api, document: Mapping[str, Any], uid: str, attempts: Attempts) -> Document:
    kind, metadata, path = kind_of(document), document["metadata"], _path(document)
    pauses = iter(_PAUSES)
    for _ in range(3 + len(_PAUSES)):
        try:
            return _post(api, document, attempts)
        except ApiError as error:
            pause = next(pauses, None) if is_unseen_runtime(error) or is_missed_webhook(error) else None
            if pause is not None:
                time.sleep(pause)
                continue
            if not (error.status == 409 or error.ambiguous):
                raise api_errors.translate(error, doing=f"create {kind.name} {metadata['name']}") from error
            existing = api.find(path)
        if existing is None:
            continue
        # Created before, by this call with a lost response or by another process for the same job.
        if _uid(existing) == uid:
            return existing
        # Left by a creator that was killed before it created its job.
        if kind not in JOB_KINDS and _abandoned(existing, api.now()):
            api.delete(path, uid=existing["metadata"]["uid"])
            continue
        raise Taken(existing)
    raise BackendError(f"{kind.name} {metadata['name']} could not be created: it is repeatedly deleted")


def _post(api: Api, document: Mapping[str, Any], attempts: Attempts) -> Document:
    kind, path = kind_of(document), _path(document)
    # The response of an earlier attempt was lost.
    response_lost = path in attempts
    attempts.setdefault(path, "")
    accept = JSON if kind in JOB_KINDS else PARTIAL
    try:
        created = api.create(kind.path(document["metadata"]["namespace"]), document, accept=accept)
    except ApiError as error:
        if not (response_lost or error.ambiguous):
            del attempts[path]
        raise
    attempts[path] = created["metadata"]["uid"]
    return created


def is_unseen_runtime(error: ApiError) -> bool:
    """Return whether a webhook has not seen yet the runtime that was created just before."""
    return (
        error.status in (400, 403, 404, 422) and "webhook" in error.message and "not found" in error.message
    )


def is_missed_webhook(error: ApiError) -> bool:
    """Return whether the API server called a pod of our webhook that was just deleted; the next call succeeds."""
    ours = "failed calling webhook" in error.message and ".mpijob.dev" in error.message
    return error.status == 500 and ours and any(sign in error.message for sign in _PEER_GONE)


def _uid(document: Mapping[str, Any]) -> str:
    return str((document["metadata"].get("labels") or {}).get(well_known.UID_LABEL, ""))


def _abandoned(existing: Mapping[str, Any], now: float) -> bool:
    """Return whether the object was left by a creator that was killed before it created the job."""
    metadata = existing["metadata"]
    if metadata.get("ownerReferences") or not _uid(existing):
        return False
    created = time_of(metadata["creationTimestamp"])
    return created is not None and now - created > ABANDONED_SECONDS


def _undo(api: Api, attempts: Attempts, uid: str) -> None:
    """Delete what this call created, also if the response was lost."""
    for path, created in reversed(attempts.items()):
        try:
            if own_uid := created or _uid_if_ours(api.find(path), uid):
                api.delete(path, uid=own_uid)
        except ApiError:
            # The garbage collector, or the next user of the name, deletes it.
            continue


def _uid_if_ours(existing: Document | None, uid: str) -> str:
    return str(existing["metadata"]["uid"]) if existing is not None and _uid(existing) == uid else ""


def _files(plan: Plan) -> list[Document]:
    names = code_archive.names_in(plan.documents)
    if not names:
        return []
    packed = code_archive.packed(plan.job, len(names))
    return [
        _config_map(_metadata(plan.job, name, plan.uid), data)
        for name, data in zip(names, packed, strict=True)
    ]


def _profiler(plan: Plan, home: Path | None) -> list[Document]:
    """Return the config map with the shim that counts MPI calls, for each machine architecture."""
    if not plan.job.profile_mpi or home is None:
        return []
    packed = {
        f"mpi_profile-{machine}.gz": base64.b64encode(gzip.compress(data, mtime=0)).decode()
        for machine, data in profiler.shims_by_machine(home).items()
    }
    name = f"{plan.documents[-1]['metadata']['name']}{well_known.PROFILER_SUFFIX}"
    metadata = _metadata(plan.job, name, plan.uid)
    return (
        [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": packed}]
        if packed
        else []
    )


def _config_map(metadata: Document, data: bytes) -> Document:
    packed = base64.b64encode(data).decode()
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {"archive": packed}}


def _secrets(plan: Plan) -> list[Document]:
    """Return the Secret with the values from this machine's environment or files."""
    job = plan.job
    values = {
        secret.env: base64.b64encode(secrets.read_value(secret).encode()).decode()
        for secret in job.secrets
        if secret.source.startswith(("env:", "file:"))
    }
    if not values:
        return []
    name = f"{plan.documents[-1]['metadata']['name']}{well_known.SECRETS_SUFFIX}"
    metadata = _metadata(job, name, plan.uid)
    return [{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": values}]


def _metadata(job: MPIJob, name: str, uid: str) -> Document:
    labels = {
        well_known.MANAGED_LABEL: well_known.MANAGED_BY,
        well_known.JOB_LABEL: job.name,
        well_known.UID_LABEL: uid,
    }
    return {"name": name, "namespace": job.namespace, "labels": labels}
