"""The limits that an administrator sets for a namespace, stored in the cluster's own objects.

Limits of jobs are an `MPIJobLimits` with the namespace's name, hard amounts a ResourceQuota, the way to a
ClusterQueue a LocalQueue. The overview of the whole cluster is in `overview`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import ApiError, translated
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.errors import Conflict, NotFound, Unsupported
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.sizing import resource_requests
from mpijob.model.platform.governance import (
    API,
    SINGLETON,
    NamespaceLimits,
    Platform,
    Rates,
    limits_of,
    platform_of,
)
from mpijob.model.status.overview import Line
from mpijob.settings import RateSetting

LIMITS = Kind(API, "MPIJobLimits", "mpijoblimits", namespaced=False)
PLATFORM = Kind(API, "MPIJobPlatform", "mpijobplatforms", namespaced=False)
# The name of the ResourceQuota that mpijob writes; others are only read.
QUOTA = "mpijob"
_QUOTA_NAMES = {"cpu": "requests.cpu", "memory": "requests.memory", "gpu": "requests.nvidia.com/gpu"}
_HINT = "install the resource definitions: kubectl apply --server-side -k deploy/base/crds"


class Governor:
    """The limits of namespaces on one cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api

    # -- reading -----------------------------------------------------------------------------------
    def own(self, namespace: str) -> NamespaceLimits | None:
        """Return what was set for a namespace; None without limits."""
        with translated(f"read the limits of {namespace}"):
            found = self._api.find(LIMITS.path("", namespace))
        return None if found is None else limits_of(found)

    def platform(self) -> Platform:
        """Return the settings of the whole cluster, defaults for what is not set or may not be read."""
        try:
            found = self._api.find(PLATFORM.path("", SINGLETON))
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            found = None
        return Platform() if found is None else platform_of(found)

    def rates(self) -> dict[str, RateSetting]:
        """Return the cost of hours by namespace, "*" for all others, as far as set and readable."""
        try:
            found = self._api.list(LIMITS.path("")).items
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            found = []
        rates_of = {item["metadata"]["name"]: limits_of(item).rates for item in found}
        rates_of["*"] = self.platform().defaults.rates
        return {name: _rate(rates) for name, rates in rates_of.items() if rates is not None}

    def quotas(self, namespace: str) -> tuple[Line, ...]:
        with translated(f"read the quotas of {namespace}"):
            found = self._api.list(resources.RESOURCE_QUOTA.path(namespace)).items
        return tuple(line for quota in found for line in lines_of(quota))

    def queues(self, namespace: str) -> dict[str, str]:
        """Return a namespace's LocalQueues with their ClusterQueues; {} without Kueue."""
        with translated(f"read the queues of {namespace}"):
            try:
                found = self._api.list(resources.LOCAL_QUEUE.path(namespace)).items
            except ApiError as error:
                if error.status != 404:
                    raise
                return {}
        return {queue["metadata"]["name"]: str(queue["spec"].get("clusterQueue") or "") for queue in found}

    # -- writing -----------------------------------------------------------------------------------
    def write(self, namespace: str, limits: NamespaceLimits, *, dry_run: bool = False) -> None:
        """Set the limits of a namespace; what they do not contain is removed."""
        self._refuse_unknown(namespace)
        spec = msgspec.to_builtins(limits)
        with translated(f"set the limits of {namespace}"):
            try:
                found = self._api.find(LIMITS.path("", namespace))
                self._put(LIMITS, "", namespace, found, spec, dry_run=dry_run)
            except ApiError as error:
                if error.status == 404:
                    raise Unsupported("MPIJobLimits is not installed on this cluster", hint=_HINT) from error
                raise

    def write_quota(self, namespace: str, amounts: Mapping[str, str], *, dry_run: bool = False) -> None:
        """Set hard amounts of a namespace (`cpu`, `memory`, `gpu`, or a resource name); "" removes one."""
        self._refuse_unknown(namespace)
        with translated(f"set the quota of {namespace}"):
            found = self._api.find(resources.RESOURCE_QUOTA.path(namespace, QUOTA))
            hard = dict((found or {}).get("spec", {}).get("hard") or {})
            for name, amount in amounts.items():
                hard[_QUOTA_NAMES.get(name, name)] = amount
            kept = {name: amount for name, amount in hard.items() if amount}
            self._put(resources.RESOURCE_QUOTA, namespace, QUOTA, found, {"hard": kept}, dry_run=dry_run)

    def write_queue(self, namespace: str, name: str, cluster_queue: str, *, dry_run: bool = False) -> None:
        """Create a LocalQueue of a namespace for a ClusterQueue, which must exist."""
        self._refuse_unknown(namespace)
        with translated(f"set the queue of {namespace}"):
            if self._api.find(resources.CLUSTER_QUEUE.path("", cluster_queue)) is None:
                raise NotFound(
                    f"there is no ClusterQueue '{cluster_queue}'", hint="mpijob admin overview lists them"
                )
            path, spec = resources.LOCAL_QUEUE.path(namespace, name), {"clusterQueue": cluster_queue}
            found = self._api.find(path)
            if found is not None and found["spec"].get("clusterQueue") != cluster_queue:
                _refuse_busy(found, cluster_queue)
                if dry_run:
                    # It would be recreated: the ClusterQueue of a LocalQueue is immutable.
                    return
                self._api.delete(path)
                found = None
            self._put(resources.LOCAL_QUEUE, namespace, name, found, spec, dry_run=dry_run)

    def _put(
        self, kind: Kind, namespace: str, name: str, found: Document | None, spec: Document, *, dry_run: bool
    ) -> None:
        metadata: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/managed-by": "mpijob"}}
        metadata |= {"namespace": namespace} if namespace else {}
        if found is None:
            body: dict[str, Any] = {
                "apiVersion": kind.api,
                "kind": kind.name,
                "metadata": metadata,
                "spec": spec,
            }
            self._api.create(kind.path(namespace), body, dry_run=dry_run)
            return
        path = kind.path(namespace, name)
        self._api.patch(path, {"spec": _difference(found.get("spec") or {}, spec)}, dry_run=dry_run)

    def _refuse_unknown(self, namespace: str) -> None:
        with translated(f"read namespace {namespace}"):
            if self._api.find(resources.NAMESPACE.path("", namespace)) is None:
                raise NotFound(
                    f"namespace '{namespace}' does not exist", hint="mpijob admin overview lists them"
                )


def _rate(rates: Rates) -> RateSetting:
    return RateSetting(rates.cpu_hour, rates.memory_gib_hour, rates.gpu_hour, rates.currency)


def lines_of(quota: Document) -> tuple[Line, ...]:
    status, spec = quota.get("status") or {}, quota.get("spec") or {}
    hard, used = status.get("hard") or spec.get("hard") or {}, status.get("used") or {}
    source = f"ResourceQuota {quota['metadata']['name']}"
    return tuple(
        Line(
            source=source,
            resource=name,
            used=resource_requests.number(used.get(name, 0)),
            most=resource_requests.number(most),
        )
        for name, most in hard.items()
    )


def _refuse_busy(queue: Document, cluster_queue: str) -> None:
    # Recreating a queue would drop its jobs.
    status = queue.get("status") or {}
    jobs = sum(int(status.get(field) or 0) for field in ("pendingWorkloads", "reservingWorkloads"))
    if jobs:
        name = queue["metadata"]["name"]
        raise Conflict(
            f"queue '{name}' leads to '{queue['spec'].get('clusterQueue')}' and has {jobs} jobs",
            hint=f"wait for them, or create another queue for '{cluster_queue}' with --queue NAME",
        )


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merge patch from one tree to another: removed fields are null."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            patch[key] = _difference(before, value)
        else:
            patch[key] = value
    return patch
