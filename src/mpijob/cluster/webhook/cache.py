"""What the webhook knows about the cluster: limits, quotas and jobs, kept up to date by watches.

An API server waits for the response, so data that rarely changes is kept in memory; only a runtime that was
just created, and permissions of the user, are requested. What cannot be read does not limit. The decision is
made in `admission`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError, Document
from mpijob.backends.kubernetes.client.informer import Cache, ListWatch
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.preflight import quota
from mpijob.formats.admission import request_reader
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model.platform import governance
from mpijob.model.platform.admission_request import MOST_ACCOUNTS, MOST_SECRETS, Around, Incoming
from mpijob.model.platform.cluster import Ask, Ceiling
from mpijob.model.platform.governance import NamespaceLimits

PLATFORM = Kind(governance.API, "MPIJobPlatform", "mpijobplatforms", namespaced=False)
LIMITS = Kind(governance.API, "MPIJobLimits", "mpijoblimits", namespaced=False)
REVIEW = Kind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
_FINISHED_CONDITIONS = ("Complete", "Failed", "Succeeded")
# Longer than a watch needs to deliver a new job. A job that was admitted here and rejected by another webhook
# counts for this time.
_ADMITTED_TTL_SECONDS = 5.0
_RESOURCES = {"TrainJob": "trainjobs.trainer.kubeflow.org", "MPIJob": "mpijobs.kubeflow.org"}
_WATCHED = {
    "platform": PLATFORM,
    "limits": LIMITS,
    "quotas": resources.RESOURCE_QUOTA,
    "ranges": resources.LIMIT_RANGE,
    "TrainJob": resources.TRAINJOB,
    "MPIJob": resources.MPIJOB,
    "TrainingRuntime": resources.TRAINING_RUNTIME,
    "ClusterTrainingRuntime": resources.CLUSTER_RUNTIME,
}
_LIMIT_SOURCES = ("platform", "limits")


class WebhookCache:
    """The watched objects, updated in the background while its context is open; a `ClusterView`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        trims = {"TrainJob": _trim_job, "MPIJob": _trim_job}
        self._cache = Cache(
            api, {name: ListWatch(kind.path(), trim=trims.get(name)) for name, kind in _WATCHED.items()}
        )
        self._admitted: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> WebhookCache:
        self._cache.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cache.close()

    def wait_synced(self, seconds: float) -> bool:
        """Return whether everything that can be read was loaded within this time."""
        return self._cache.settled(seconds)

    def limits_known(self) -> bool:
        """Return whether the limits are known; a cluster without the kind has none."""
        return all(self._cache.knows(name) for name in _LIMIT_SOURCES)

    def limits(self, namespace: str) -> NamespaceLimits:
        """Return the limits of a namespace, completed by the platform's defaults."""
        limits = self._cache.find("limits", "", namespace)
        platform = self._cache.find("platform", "", governance.SINGLETON)
        try:
            defaults = governance.platform_of(platform).defaults if platform else NamespaceLimits()
            return governance.effective(governance.limits_of(limits) if limits else None, defaults)
        except msgspec.ValidationError:
            # The CRD's schema rejects invalid objects, so this is one of another version.
            return NamespaceLimits()

    def runtime(self, document: Mapping[str, Any], namespace: str) -> Document | None:
        """Return the runtime that a TrainJob references; one that the watch has not delivered yet is requested."""
        kind, name = request_reader.runtime_name(document)
        if kind not in ("TrainingRuntime", "ClusterTrainingRuntime") or not name:
            return None
        runtime_namespace = namespace if kind == "TrainingRuntime" else ""
        runtime = self._cache.find(kind, runtime_namespace, name)
        if runtime is not None:
            return {"kind": kind, **runtime}
        try:
            runtime = self._api.find(_WATCHED[kind].path(runtime_namespace, name))
        except ApiError:
            return None
        return {"kind": kind, **runtime} if runtime is not None else None

    def facts(self, request: Incoming) -> Around:
        limits = self.limits(request.namespace)
        job = request.job
        asks: tuple[Ask, ...] = ()
        quota_lines: tuple[Ceiling, ...] = ()
        bounds = quota.bounds(self._objects_in("ranges", request.namespace)) if job is not None else ()
        if job is not None:
            quotas = self._objects_in("quotas", request.namespace)
            asks, quota_lines, _ = quota.counted(
                job, _RESOURCES[request.kind], quotas, bounds, _priority_class(request)
            )
        return Around(
            limits=limits,
            jobs_running=self._running_jobs(request) if limits.concurrent_jobs is not None else 0,
            quota=quota.quota(quota_lines, job, request_url=limits.quota_request_url) if job else None,
            asks=asks,
            ceilings=tuple(
                quota_line for quota_line in quota_lines if job and not quota.is_whole(quota_line, job)
            ),
            bounds=bounds,
            unreadable_secrets=tuple(
                name
                for name in request.secrets[:MOST_SECRETS]
                if not self._is_own_key(request, name)
                and not self._is_allowed(request, "get", "secrets", name)
            ),
            unreadable_config_maps=tuple(
                name
                for name in request.config_maps[:MOST_SECRETS]
                if not self._is_own_code(request, name)
                and not self._is_allowed(request, "get", "configmaps", name)
            ),
            forbidden_accounts=tuple(self._forbidden_accounts(request)),
        )

    def count_admitted(self, request: Incoming) -> None:
        """Count an admitted job until the watch delivers it."""
        with self._lock:
            self._admitted[request.namespace, request.name] = time.monotonic()

    def _objects_in(self, source: str, namespace: str) -> list[Document]:
        return [item for item in self._cache.objects(source) if item["metadata"]["namespace"] == namespace]

    def _running_jobs(self, request: Incoming) -> int:
        """Return how many other jobs of the namespace have not ended."""
        jobs = {
            job["metadata"]["name"]
            for kind in _RESOURCES
            for job in self._objects_in(kind, request.namespace)
            if not _is_finished(job)
        }
        now = time.monotonic()
        with self._lock:
            self._admitted = {
                key: admitted_at
                for key, admitted_at in self._admitted.items()
                if now - admitted_at < _ADMITTED_TTL_SECONDS
            }
            jobs |= {name for ns, name in self._admitted if ns == request.namespace}
        return len(jobs - {request.name})

    def _is_own_key(self, request: Incoming, name: str) -> bool:
        """Return whether a Secret holds the key of the job itself, which its creator need not be allowed to read.

        Trainer makes it for the job of that name. A runtime may name it when it is created and no job of somebody
        else has the name: a job that would use another's runtime is looked at with its own name.
        """
        if name != request.name + trainjob.KEY_SUFFIX:
            return False
        if request.kind != "TrainingRuntime":
            return request.kind == "TrainJob"
        job = self._cache.find("TrainJob", request.namespace, request.name)
        mine = job is None or request_reader.owner(job) == request.user
        return request.operation == "CREATE" and mine

    def _is_own_code(self, request: Incoming, name: str) -> bool:
        """Return whether a ConfigMap holds the code of the job itself."""
        # Its creator need not be allowed to read it back. It is named after the first attempt's object; the job is
        # that attempt, or a further attempt of the same owner.
        job_name = well_known.owner_of_code(name)
        if not job_name:
            return False
        candidates = [self._cache.find(kind, request.namespace, job_name) for kind in _RESOURCES]
        owners = {request_reader.owner(job) for job in candidates if job is not None}
        return owners == {request.user} or (not owners and request.name == job_name)

    def _forbidden_accounts(self, request: Incoming) -> Iterable[str]:
        accounts = {name for pod in request.pods for name in pod.accounts}
        for name in sorted(accounts)[:MOST_ACCOUNTS]:
            if not self._is_allowed(request, "create", "serviceaccounts", name, "token"):
                yield name

    def _is_allowed(self, request: Incoming, verb: str, resource: str, name: str, sub: str = "") -> bool:
        attributes = {
            "namespace": request.namespace,
            "verb": verb,
            "resource": resource,
            "name": name,
            "subresource": sub,
        }
        spec = {"user": request.user, "groups": list(request.groups), "resourceAttributes": attributes}
        review = self._api.create(
            REVIEW.path(), {"apiVersion": REVIEW.api, "kind": REVIEW.name, "spec": spec}
        )
        return bool(review["status"].get("allowed"))


def _priority_class(request: Incoming) -> str:
    return next((pod.priority_class for pod in request.pods if pod.priority_class), "")


def _is_finished(document: Document) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") in _FINISHED_CONDITIONS and condition.get("status") == "True"
        for condition in conditions
    )


def _trim_job(document: Document) -> Document:
    """Reduce a job to what is counted: name, labels, owner and conditions."""
    metadata = document["metadata"]
    reduced = {
        key: metadata[key]
        for key in ("name", "namespace", "uid", "resourceVersion", "labels")
        if key in metadata
    }
    owner = request_reader.owner(document)
    reduced["annotations"] = {well_known.OWNER_LABEL: owner} if owner else {}
    conditions = (document.get("status") or {}).get("conditions") or []
    return {"metadata": reduced, "status": {"conditions": conditions}}
