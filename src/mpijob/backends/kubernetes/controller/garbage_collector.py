"""Deletes objects of jobs that no longer exist, and sets the owner of those whose job does.

A submit that is killed half-way leaves a runtime, a config map or a secret without an owner reference. They
have the label with their job's uid.
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

# Younger ones may belong to a submit that is still running.
_MIN_AGE_SECONDS = 60.0
_KINDS = (resources.TRAINING_RUNTIME, resources.CONFIG_MAP, resources.SECRET, resources.NETWORK_POLICY)
_OURS = f"{well_known.MANAGED_LABEL}={well_known.MANAGED_BY},{well_known.UID_LABEL}"
_log = logging.getLogger(__name__)


def sweep(
    api: Api, namespace: str, served: frozenset[str], stray_seconds: float = _MIN_AGE_SECONDS
) -> list[str]:
    """Delete all orphans of a namespace ("" for all) and set the owners of the others; return the deleted paths."""
    deleted = []
    for kind in _KINDS:
        if "/" in kind.api and kind.api not in served and kind is resources.TRAINING_RUNTIME:
            continue
        for ownerless in _ownerless(api, kind, namespace, stray_seconds):
            path = kind.path(ownerless["metadata"]["namespace"], ownerless["metadata"]["name"])
            if _delete_or_own(api, ownerless, path, served):
                deleted.append(path)
    return deleted


def _ownerless(api: Api, kind: Kind, namespace: str, stray_seconds: float) -> list[Document]:
    try:
        found = api.list(kind.path(namespace), labels=_OURS, accept=METADATA).items
    except ApiError as error:
        if error.status in (403, 404):
            return []
        raise
    now = api.now()
    return [item for item in found if _is_ownerless(item["metadata"], now - stray_seconds)]


def _is_ownerless(metadata: Mapping[str, Any], before: float) -> bool:
    created = time_of(metadata["creationTimestamp"])
    return not metadata.get("ownerReferences") and created is not None and created < before


def _delete_or_own(api: Api, stray: Document, path: str, served: frozenset[str]) -> bool:
    """Delete the object if its job does not exist; return whether it was deleted."""
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
    # From the API server: a cache may be behind, and then a new job would lose its objects.
    return [
        {"apiVersion": kind.api, "kind": kind.name} | job
        for kind in job_objects.JOB_KINDS
        if kind.api in served
        for job in api.list(kind.path(namespace), labels=f"{well_known.UID_LABEL}={uid}").items
    ]
