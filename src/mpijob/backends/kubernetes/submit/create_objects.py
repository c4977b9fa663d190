"""Create the objects of a job: idempotent, all or nothing, and nothing is repeated blindly.

The runtime (and uploaded code) is created first, because the engine's webhook requires it; then the job, which comes
to own the rest (`owner_references`). Names decide races: the API server lets one of two creators win. Whoever finds
the own uid on an object has created it before, even if the answer was lost; all attempts of a job share one uid,
though, so objects of an attempt that another process began are never rolled back.
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
_PAUSES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0)
_GONE = ("connection refused", "connection reset", "no endpoints available", "no route to host", "EOF")
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
    """An object of this name is there already and is not ours; carries it."""

    def __init__(self, existing: Document) -> None:
        super().__init__(existing["metadata"]["name"])
        self.existing = existing


# What a call created, by path: the object's uid there, or nothing where no answer came.
Tried = dict[str, str]


class Made(NamedTuple):
    """The engine's job object, and what waits until the job owns all that was made for it."""

    job: Document
    owned: Callable[[], None]


def submit(api: Api, plan: Plan, home: Path | None = None) -> Made:
    """Create everything; raise Taken for a name that somebody holds.

    A shim that counts MPI calls is compiled below `home`, where no wheel has brought it.
    """
    tried: Tried = {}
    try:
        return _all(api, everything(plan, home), plan.uid, tried)
    except BaseException:  # also when the user has had enough: all of it, or nothing
        _undo(api, tried, plan.uid)
        raise


def everything(plan: Plan, home: Path | None = None) -> list[Mapping[str, Any]]:
    """Return every object of a job, the job itself last.

    The runtime is first of all: until the job follows, the webhook has time to hear of it.
    """
    return [*plan.documents[:-1], *_files(plan), *_profiler(plan, home), *_secrets(plan), plan.documents[-1]]


def again(api: Api, documents: Sequence[Mapping[str, Any]], uid: str) -> Document:
    """Return a further attempt, which shares files and secrets with the first: made here, or by somebody else."""
    tried: Tried = {}
    try:
        made = _all(api, documents, uid, tried)
    except MpiJobError:
        if (begun := _begun(api, documents[-1], uid, tried)) is None:
            raise
        return begun  # a quota is full, say, because another client was faster
    except BaseException:
        _begun(api, documents[-1], uid, tried)
        raise
    made.owned()
    return made.job


def _all(api: Api, documents: Sequence[Mapping[str, Any]], uid: str, tried: Tried) -> Made:
    """Create all objects, the job last, and let it own the others."""
    companions, owner = documents[:-1], list[Document]()
    for document in companions:
        created = _create(api, _owned(document, owner), uid, tried)
        if kind_of(document) is resources.TRAINING_RUNTIME:
            owner = [
                owner_references.reference(
                    {**created, "apiVersion": document["apiVersion"], "kind": document["kind"]}
                )
            ]
    made = _create(api, documents[-1], uid, tried)
    return Made(made, owner_references.adopt(api, made, [_path(document) for document in companions]))


def _owned(document: Mapping[str, Any], owner: list[Document]) -> Mapping[str, Any]:
    """Return a companion that goes with the job's runtime, should its creator be killed before the job is there."""
    if not owner:
        return document
    return {**document, "metadata": {**document["metadata"], "ownerReferences": owner}}


def _begun(api: Api, job: Mapping[str, Any], uid: str, tried: Tried) -> Document | None:
    """Return the attempt that another has begun meanwhile; where there is none, take back what was made for it here."""
    try:
        there = api.find(_path(job))
    except ApiError:
        return None  # it may be there; the next one to begin it uses what is left
    if there is None:
        _undo(api, {path: made for path, made in tried.items() if made}, uid)
    return there if there is not None and _uid(there) == uid else None


def kind_of(document: Mapping[str, Any]) -> Kind:
    """Return the kind of one object of a job."""
    return _KINDS[document["kind"]]


def _path(document: Mapping[str, Any]) -> str:
    return kind_of(document).path(document["metadata"]["namespace"], document["metadata"]["name"])


def _create(api: Api, document: Mapping[str, Any], uid: str, tried: Tried) -> Document:
    """Create one object; one that is there with our uid on it was created before, by this call or for the same job."""
    kind, metadata, path = kind_of(document), document["metadata"], _path(document)
    pauses = iter(_PAUSES)
    for _ in range(3 + len(_PAUSES)):
        try:
            return _post(api, document, tried)
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
        if _uid(existing) == uid:
            return existing
        if kind not in JOB_KINDS and _abandoned(existing, api.now()):
            api.delete(path, uid=existing["metadata"]["uid"])
            continue
        raise Taken(existing)
    raise BackendError(f"{kind.name} {metadata['name']} could not be created: it is repeatedly deleted")


def _post(api: Api, document: Mapping[str, Any], tried: Tried) -> Document:
    """Ask for one object to be created, and note what is this call's to undo."""
    kind, path = kind_of(document), _path(document)
    lost = path in tried  # an earlier answer
    tried.setdefault(path, "")
    accept = JSON if kind in JOB_KINDS else PARTIAL
    try:
        made = api.create(kind.path(document["metadata"]["namespace"]), document, accept=accept)
    except ApiError as error:
        if not (lost or error.ambiguous):
            del tried[path]
        raise
    tried[path] = made["metadata"]["uid"]
    return made


def is_unseen_runtime(error: ApiError) -> bool:
    """Whether a webhook has not heard yet of the runtime that was written a moment ago."""
    return (
        error.status in (400, 403, 404, 422) and "webhook" in error.message and "not found" in error.message
    )


def is_missed_webhook(error: ApiError) -> bool:
    """Whether the API server asked a pod of our own webhook that has just gone: another one answers in a moment."""
    ours = "failed calling webhook" in error.message and ".mpijob.dev" in error.message
    return error.status == 500 and ours and any(one in error.message for one in _GONE)


def _uid(document: Mapping[str, Any]) -> str:
    return str((document["metadata"].get("labels") or {}).get(well_known.UID_LABEL, ""))


def _abandoned(existing: Mapping[str, Any], now: float) -> bool:
    """Whether a companion was left behind by a creator that died before it made the job."""
    metadata = existing["metadata"]
    if metadata.get("ownerReferences") or not _uid(existing):
        return False
    made = time_of(metadata["creationTimestamp"])
    return made is not None and now - made > ABANDONED_SECONDS


def _undo(api: Api, tried: Tried, uid: str) -> None:
    """Delete what this call created, also where no answer came."""
    for path, made in reversed(tried.items()):
        try:
            if own := made or _own(api.find(path), uid):
                api.delete(path, uid=own)
        except ApiError:
            continue  # what is left is swept by whoever needs the name


def _own(existing: Document | None, uid: str) -> str:
    return str(existing["metadata"]["uid"]) if existing is not None and _uid(existing) == uid else ""


def _files(plan: Plan) -> list[Document]:
    """Return the config maps with the archive of what goes along, as many as the plan's pods mount."""
    names = code_archive.names_in(plan.documents)
    if not names:
        return []
    packed = code_archive.packed(plan.job, len(names))
    return [
        _config_map(_metadata(plan.job, name, plan.uid), data)
        for name, data in zip(names, packed, strict=True)
    ]


def _profiler(plan: Plan, home: Path | None) -> list[Document]:
    """Return the config map with the shim that counts MPI calls, packed, for each kind of machine."""
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
    """Return the Secret with values that come from this machine's environment or files."""
    job = plan.job
    values = {
        one.env: base64.b64encode(secrets.read_value(one).encode()).decode()
        for one in job.secrets
        if one.source.startswith(("env:", "file:"))
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
