"""What the webhook knows around a request, without asking for each: limits, quotas and jobs are watched.

An API server waits for the answer, so what changes seldom is kept in memory; only a runtime that was written a
moment ago, and rights of the user, are asked for. What cannot be read does not limit.
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
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model.platform import governance
from mpijob.model.platform.admission_request import MOST_ACCOUNTS, MOST_SECRETS, Around, Incoming
from mpijob.model.platform.cluster import Ask, Ceiling
from mpijob.model.platform.governance import NamespaceLimits

PLATFORM = Kind(governance.API, "MPIJobPlatform", "mpijobplatforms", namespaced=False)
LIMITS = Kind(governance.API, "MPIJobLimits", "mpijoblimits", namespaced=False)
REVIEW = Kind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
_ENDED = ("Complete", "Failed", "Succeeded")
_JUST_ADMITTED_SECONDS = 5.0
_ENGINE = {"TrainJob": "trainjobs.trainer.kubeflow.org", "MPIJob": "mpijobs.kubeflow.org"}
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
_GOVERNING = ("platform", "limits")


class WebhookCache:
    """Everything that is known, kept up to date in the background."""

    def __init__(self, api: Api) -> None:
        self._api = api
        trims = {"TrainJob": _job_only, "MPIJob": _job_only}
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

    def settled(self, seconds: float) -> bool:
        """Return whether, within this time, everything that can be read has been."""
        return self._cache.settled(seconds)

    def governed(self) -> bool:
        """Return whether it is known which limits there are; a cluster without the kind has none."""
        return all(self._cache.knows(name) for name in _GOVERNING)

    def limits(self, namespace: str) -> NamespaceLimits:
        """Return what holds in a namespace: its own limits, completed by the cluster's defaults."""
        own, platform = (
            self._cache.find("limits", "", namespace),
            self._cache.find("platform", "", governance.SINGLETON),
        )
        try:
            defaults = governance.platform_of(platform).defaults if platform else NamespaceLimits()
            return governance.effective(governance.limits_of(own) if own else None, defaults)
        except msgspec.ValidationError:
            return NamespaceLimits()  # nobody can say what it means; its schema has let it pass

    def runtime(self, document: Mapping[str, Any], namespace: str) -> Document | None:
        """Return the runtime that a TrainJob names; one that the watch has not told yet is asked for."""
        kind, name = request_reader.runtime_name(document)
        if kind not in ("TrainingRuntime", "ClusterTrainingRuntime") or not name:
            return None
        place = namespace if kind == "TrainingRuntime" else ""
        found = self._cache.find(kind, place, name)
        if found is not None:
            return {"kind": kind, **found}
        try:
            found = self._api.find(_WATCHED[kind].path(place, name))
        except ApiError:
            return None
        return {"kind": kind, **found} if found is not None else None

    def around(self, asked: Incoming) -> Around:
        """Return what must be known to judge a request."""
        limits = self.limits(asked.namespace)
        job = asked.job
        asks: tuple[Ask, ...] = ()
        lines: tuple[Ceiling, ...] = ()
        bounds = quota.bounds(self._in("ranges", asked.namespace)) if job is not None else ()
        if job is not None:
            quotas = self._in("quotas", asked.namespace)
            asks, lines, _ = quota.counted(job, _ENGINE[asked.kind], quotas, bounds, _class_of(asked))
        return Around(
            limits=limits,
            jobs_running=self._running(asked) if limits.concurrent_jobs is not None else 0,
            quota=quota.quota(lines, job, request_url=limits.quota_request_url) if job else None,
            asks=asks,
            ceilings=tuple(line for line in lines if job and not quota.is_whole(line, job)),
            bounds=bounds,
            unreadable_secrets=tuple(
                name for name in asked.secrets[:MOST_SECRETS] if not self._may(asked, "get", "secrets", name)
            ),
            unreadable_config_maps=tuple(
                name
                for name in asked.config_maps[:MOST_SECRETS]
                if not self._is_own_code(asked, name) and not self._may(asked, "get", "configmaps", name)
            ),
            forbidden_accounts=tuple(self._forbidden(asked)),
        )

    def admitted(self, asked: Incoming) -> None:
        """Count a job that was let in, until the watch tells it."""
        with self._lock:
            self._admitted[asked.namespace, asked.name] = time.monotonic()

    def _in(self, source: str, namespace: str) -> list[Document]:
        return [one for one in self._cache.objects(source) if one["metadata"]["namespace"] == namespace]

    def _running(self, asked: Incoming) -> int:
        jobs = {
            one["metadata"]["name"]
            for kind in _ENGINE
            for one in self._in(kind, asked.namespace)
            if not _is_over(one)
        }
        now = time.monotonic()
        with self._lock:
            self._admitted = {
                key: at for key, at in self._admitted.items() if now - at < _JUST_ADMITTED_SECONDS
            }
            jobs |= {name for place, name in self._admitted if place == asked.namespace}
        return len(jobs - {asked.name})

    def _is_own_code(self, asked: Incoming, name: str) -> bool:
        """Whether a ConfigMap holds the code of the job itself, which its creator need not be able to read back.

        It is called after the first attempt's object, of which the job is one, or a further attempt of its owner.
        """
        first = name.removesuffix(well_known.CODE_SUFFIX)
        if first == name:
            return False
        places = [self._cache.find(kind, asked.namespace, first) for kind in _ENGINE]
        owners = {request_reader.owner(one) for one in places if one is not None}
        return owners == {asked.user} or (not owners and asked.name == first)

    def _forbidden(self, asked: Incoming) -> Iterable[str]:
        named = {name for one in asked.pods for name in one.accounts}
        for name in sorted(named)[:MOST_ACCOUNTS]:
            if not self._may(asked, "create", "serviceaccounts", name, "token"):
                yield name

    def _may(self, asked: Incoming, verb: str, resource: str, name: str, sub: str = "") -> bool:
        attributes = {
            "namespace": asked.namespace,
            "verb": verb,
            "resource": resource,
            "name": name,
            "subresource": sub,
        }
        spec = {"user": asked.user, "groups": list(asked.groups), "resourceAttributes": attributes}
        made = self._api.create(REVIEW.path(), {"apiVersion": REVIEW.api, "kind": REVIEW.name, "spec": spec})
        return bool(made["status"].get("allowed"))


def _class_of(asked: Incoming) -> str:
    return next((one.priority_class for one in asked.pods if one.priority_class), "")


def _is_over(document: Document) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(one.get("type") in _ENDED and one.get("status") == "True" for one in conditions)


def _job_only(document: Document) -> Document:
    """Keep of a job what is counted: its name, labels, owner and how it stands."""
    metadata = document["metadata"]
    kept = {
        key: metadata[key]
        for key in ("name", "namespace", "uid", "resourceVersion", "labels")
        if key in metadata
    }
    owner = request_reader.owner(document)
    kept["annotations"] = {well_known.OWNER_LABEL: owner} if owner else {}
    conditions = (document.get("status") or {}).get("conditions") or []
    return {"metadata": kept, "status": {"conditions": conditions}}
