"""Clearing away what was made for jobs that are gone, or giving it to the job that is still there.

A submit that is killed in its middle leaves a runtime, a config map or a secret without an owner. They carry
their job's uid; when no job has it, nobody will ever need them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import METADATA, Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.submit import owner_references
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.status.nested_fields import time_of

_STRAY_SECONDS = 60.0  # until then its creator may be at work
_COMPANIONS = (resources.TRAINING_RUNTIME, resources.CONFIG_MAP, resources.SECRET, resources.NETWORK_POLICY)
_OURS = f"{well_known.MANAGED_LABEL}={well_known.MANAGED_BY},{well_known.UID_LABEL}"
_log = logging.getLogger(__name__)


def sweep(
    api: Api, namespace: str, served: frozenset[str], stray_seconds: float = _STRAY_SECONDS
) -> list[str]:
    """Delete every stray of a namespace, "" for all, and let jobs own theirs; return the paths of what went."""
    gone = []
    for kind in _COMPANIONS:
        if "/" in kind.api and kind.api not in served and kind is resources.TRAINING_RUNTIME:
            continue
        for one in _strays(api, kind, namespace, stray_seconds):
            path = kind.path(one["metadata"]["namespace"], one["metadata"]["name"])
            if _settled(api, one, path, served):
                gone.append(path)
    return gone


def _strays(api: Api, kind: Kind, namespace: str, stray_seconds: float) -> list[Document]:
    try:
        found = api.list(kind.path(namespace), labels=_OURS, accept=METADATA).items
    except ApiError as error:
        if error.status in (403, 404):
            return []
        raise
    now = api.now()
    return [one for one in found if _is_stray(one["metadata"], now - stray_seconds)]


def _is_stray(metadata: Mapping[str, Any], before: float) -> bool:
    made = time_of(metadata["creationTimestamp"])
    return not metadata.get("ownerReferences") and made is not None and made < before


def _settled(api: Api, stray: Document, path: str, served: frozenset[str]) -> bool:
    """Give a stray to its job, or delete it; return whether it was deleted."""
    metadata = stray["metadata"]
    uid = metadata["labels"][well_known.UID_LABEL]
    jobs = _jobs_of(api, metadata["namespace"], uid, served)
    if jobs:
        owner_references.share(api, jobs[0], [path])
        return False
    api.delete(path, uid=metadata["uid"])
    _log.warning("deleted %s, because its job does not exist", path)
    return True


def _jobs_of(api: Api, namespace: str, uid: str, served: frozenset[str]) -> list[Document]:
    """Ask the API server itself: a cache may be behind."""
    return [
        {"apiVersion": kind.api, "kind": kind.name} | job
        for kind in job_objects.JOB_KINDS
        if kind.api in served
        for job in api.list(kind.path(namespace), labels=f"{well_known.UID_LABEL}={uid}").items
    ]
