"""Whose an object is: a job owns what was made for it, so that it goes when the job goes.

The owner can be written only when the job is there, and takes longer than the job itself, because the engine
is busy with the same objects by then. So it is written behind the caller's back; the end of the process waits
for it. A creator that was killed before leaves strays: whoever follows the job mends that, and whoever deletes
it deletes them.
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

_STRAY_SECONDS = 10.0  # until then its creator is at work


def reference(owner: Mapping[str, Any]) -> Document:
    """Return how an object names its owner."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def adopt(api: Api, owner: Mapping[str, Any], paths: Iterable[str]) -> Callable[[], None]:
    """Let a job own what was made for it, from now on; return what waits until that is written."""
    body = {"metadata": {"ownerReferences": [reference(owner)]}}

    def write() -> None:
        for path in paths:
            try:
                api.patch(path, body, accept=PARTIAL)
            except ApiError:
                continue  # the job runs all the same, and a stray is mended or swept later

    return concurrent.later(write, lasting=True)


def share(api: Api, owner: Mapping[str, Any], paths: Iterable[str]) -> None:
    """Let a further attempt own, beside the others, what they share; the first one's is enough where it may not."""
    for path in paths:
        try:
            _add_owner(api, path, reference(owner))
        except ApiError as error:
            if error.status != 403:  # a controller reads no secrets, and a user may change no config maps
                raise


def _add_owner(api: Api, path: str, owner: Document) -> None:
    shared = api.find(path)
    owners = (shared or {"metadata": {}})["metadata"].get("ownerReferences") or []
    if shared is not None and owner not in owners:  # another client that waits was first
        api.patch(path, {"metadata": {"ownerReferences": [*owners, owner]}}, accept=PARTIAL)


def mend(api: Api, job: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> None:
    """Let a job own its runtime where whoever created both was stopped before saying so."""
    if runtime is None or not _is_stray(runtime, job):
        return
    metadata = runtime["metadata"]
    made = time_of(metadata["creationTimestamp"])
    if made is not None and time.time() - made > _STRAY_SECONDS:
        adopt(api, job, [resources.TRAINING_RUNTIME.path(metadata["namespace"], metadata["name"])])()


def sweep(api: Api, kind: Kind, job: Mapping[str, Any]) -> None:
    """Delete what was made for a job that is deleted and has no owner that takes it along."""
    if not _uid(job):
        return  # somebody else's job, and somebody else's companions
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    companions = [
        resources.CONFIG_MAP.path(namespace, name + well_known.PROFILER_SUFFIX),
        resources.SECRET.path(namespace, name + well_known.SECRETS_SUFFIX),
        resources.NETWORK_POLICY.path(namespace, name + well_known.NETWORK_SUFFIX),
    ]
    if kind is resources.TRAINJOB:
        companions.append(resources.TRAINING_RUNTIME.path(namespace, name))
    for path in companions:
        _remove_stray(api, path, job)
    for part in well_known.code_parts(name + well_known.CODE_SUFFIX, well_known.MOST_CODE_PARTS):
        if not _remove_stray(api, resources.CONFIG_MAP.path(namespace, part), job):
            return


def _remove_stray(api: Api, path: str, job: Mapping[str, Any]) -> bool:
    """Delete it where nobody owns it; return whether there was such an object."""
    try:
        left = api.find(path)
        if left is not None and _is_stray(left, job):
            api.delete(path, uid=left["metadata"]["uid"])
        return left is not None
    except ApiError as error:
        if error.status != 403:  # who may not see or delete it has not created it either
            raise
        return False


def _is_stray(companion: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    ours = _uid(companion) != "" and _uid(companion) == _uid(job)
    return ours and not companion["metadata"].get("ownerReferences")


def _uid(document: Mapping[str, Any]) -> str:
    return str((document["metadata"].get("labels") or {}).get(well_known.UID_LABEL, ""))
