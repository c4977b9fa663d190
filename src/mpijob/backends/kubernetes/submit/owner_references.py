"""Owner references: a job owns the objects that were created for it, so that they are deleted with it.

A reference needs the job's uid, so it is written when the job exists; that takes longer than creating the
job, because the engine works on the same objects then. So it is written in a thread that the process waits
for at its end. A creator that is killed before leaves objects without an owner: the controller sets it
(`mend`), and deleting the job deletes them (`sweep`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mpijob.backends.kubernetes.client import concurrent, resources
from mpijob.backends.kubernetes.client.api import PARTIAL, Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status.nested_fields import time_of

# Until then its creator may be at work.
_STRAY_SECONDS = 10.0


def reference(owner: Mapping[str, Any]) -> Document:
    """Return the owner reference to an object."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def adopt(api: Api, owner: Mapping[str, Any], paths: Iterable[str]) -> Callable[[], None]:
    """Make a job the owner of objects, in a thread; return a function that waits for it."""
    body = {"metadata": {"ownerReferences": [reference(owner)]}}

    def write() -> None:
        for path in paths:
            try:
                api.patch(path, body, accept=PARTIAL)
            except ApiError:
                # The job runs nevertheless; the owner is set, or the object deleted, later.
                continue

    return concurrent.later(write, lasting=True)


def share(api: Api, owner: Mapping[str, Any], paths: Iterable[str]) -> None:
    """Make a further attempt an owner of shared objects, beside the first one."""
    for path in paths:
        try:
            _add_owner(api, path, reference(owner))
        except ApiError as error:
            # A controller may not read secrets, and a user may not change config maps; the first owner is
            # enough then.
            if error.status != 403:
                raise


def _add_owner(api: Api, path: str, owner: Document) -> None:
    shared = api.find(path)
    owners = (shared or {"metadata": {}})["metadata"].get("ownerReferences") or []
    # Another client may have been faster.
    if shared is not None and owner not in owners:
        api.patch(path, {"metadata": {"ownerReferences": [*owners, owner]}}, accept=PARTIAL)


def mend(api: Api, job: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> None:
    """Make a job the owner of its runtime, if its creator was killed before it did."""
    if runtime is None or not _is_stray(runtime, job):
        return
    metadata = runtime["metadata"]
    created = time_of(metadata["creationTimestamp"])
    if created is not None and time.time() - created > _STRAY_SECONDS:
        adopt(api, job, [resources.TRAINING_RUNTIME.path(metadata["namespace"], metadata["name"])])()


def sweep(api: Api, kind: Kind, job: Mapping[str, Any]) -> None:
    """Delete the objects of a deleted job that have no owner."""
    if not _uid(job):
        # Not created by mpijob.
        return
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    paths = [
        resources.CONFIG_MAP.path(namespace, name + well_known.PROFILER_SUFFIX),
        resources.SECRET.path(namespace, name + well_known.SECRETS_SUFFIX),
        resources.NETWORK_POLICY.path(namespace, name + well_known.NETWORK_SUFFIX),
    ]
    if kind is resources.TRAINJOB:
        paths.append(resources.TRAINING_RUNTIME.path(namespace, name))
    for path in paths:
        _remove_stray(api, path, job)
    for part in well_known.code_parts(name + well_known.CODE_SUFFIX, well_known.MOST_CODE_PARTS):
        if not _remove_stray(api, resources.CONFIG_MAP.path(namespace, part), job):
            return


def _remove_stray(api: Api, path: str, job: Mapping[str, Any]) -> bool:
    """Delete the object if it has no owner; return whether it existed."""
    try:
        left = api.find(path)
        if left is not None and _is_stray(left, job):
            api.delete(path, uid=left["metadata"]["uid"])
        return left is not None
    except ApiError as error:
        # A user who may not read or delete it has not created it either.
        if error.status != 403:
            raise
        return False


def _is_stray(companion: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    ours = _uid(companion) != "" and _uid(companion) == _uid(job)
    return ours and not companion["metadata"].get("ownerReferences")


def _uid(document: Mapping[str, Any]) -> str:
    return str((document["metadata"].get("labels") or {}).get(well_known.UID_LABEL, ""))
