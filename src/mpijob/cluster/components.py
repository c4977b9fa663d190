"""The manifests of the platform: our services, roles, CRDs, runtimes and queues.

`reconcile` applies them; manifests of engines are read by `manifests`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mpijob.cluster import manifests
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.runtimes import builtin as shipped
from mpijob.model.platform.governance import Management, Platform, Queue, Service

KUEUE_API = "kueue.x-k8s.io/v1beta2"
FLAVOR = "mpijob-default"
QUOTA_ALERT = "MPIJobQuotaNearlyConsumed"
# Directories of deploy/base that are applied unchanged.
STATIC_COMPONENTS = ("roles", "audit")


def services(platform: Platform) -> dict[str, Service]:
    """Return the settings of each of our services, by the names of their directories."""
    return msgspec.structs.asdict(platform.services)


def service_directory(name: str, deploy: Path, *, openshift: bool) -> Path:
    """Return the directory of a service's manifests; some differ on OpenShift."""
    openshift_directory = deploy / "openshift" / name
    return openshift_directory if openshift and openshift_directory.is_dir() else deploy / "base" / name


def service(settings: Service, source: Path, platform: Platform) -> list[Document]:
    """Return the manifests of one service, with the platform's image and replica count."""
    documents = manifests.with_images(manifests.read_kustomization(source), "", platform.image)
    return [_with_replicas(document, settings.replicas) for document in documents]


def without_fs_group(document: Document) -> Document:
    # OpenShift assigns a group from the namespace's range and rejects any other.
    if document["kind"] != "Deployment":
        return document
    changed = copy.deepcopy(document)
    changed["spec"]["template"]["spec"].get("securityContext", {}).pop("fsGroup", None)
    return changed


def _with_replicas(document: Document, replicas: int) -> Document:
    if document["kind"] != "Deployment":
        return document
    return {**document, "spec": {**document["spec"], "replicas": replicas}}


def queues(platform: Platform) -> list[Document]:
    if not platform.queues:
        return []
    flavor = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}
    return [flavor, *(document for queue in platform.queues for document in _queue(queue))]


def _queue(queue: Queue) -> Iterator[Document]:
    resources = [{"name": name, "nominalQuota": amount} for name, amount in sorted(queue.quota.items())]
    spec: Document = {"namespaceSelector": {}}
    if resources:
        covered = [resource["name"] for resource in resources]
        spec["resourceGroups"] = [
            {"coveredResources": covered, "flavors": [{"name": FLAVOR, "resources": resources}]}
        ]
    if queue.cohort:
        spec["cohortName"] = queue.cohort
    yield {"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": queue.name}, "spec": spec}
    for namespace in queue.namespaces:
        metadata = {"name": queue.name, "namespace": namespace}
        yield {
            "apiVersion": KUEUE_API,
            "kind": "LocalQueue",
            "metadata": metadata,
            "spec": {"clusterQueue": queue.name},
        }


def runtimes(platform: Platform, *, openshift: bool) -> list[Document]:
    """Return the built-in runtimes, for TrainJobs written by others."""
    # OpenShift assigns the user ID of pods itself.
    user = None if openshift else well_known.PLAIN_USER
    documents = [
        shipped.document(runtime, user=user) for runtime in shipped.SHIPPED if runtime.kind == shipped.KIND
    ]
    return manifests.with_images(documents, platform.registry)


def monitoring(deploy: Path, namespace: str, platform: Platform) -> list[Document]:
    """Return the manifests for Prometheus: monitors, rules, dashboards; the quota alert at its percentage."""
    documents = (
        manifests.in_namespace(document, namespace)
        for document in manifests.read_kustomization(deploy / "monitoring")
    )
    return [
        _with_alert_percentage(document, platform.monitoring.quota_alert_percent) for document in documents
    ]


def _with_alert_percentage(document: Document, percent: float) -> Document:
    if document["kind"] != "PrometheusRule":
        return document
    groups = [
        {**group, "rules": [_with_threshold(rule, percent) for rule in group["rules"]]}
        for group in document["spec"]["groups"]
    ]
    return {**document, "spec": {**document["spec"], "groups": groups}}


def _with_threshold(rule: Document, percent: float) -> Document:
    if rule.get("alert") != QUOTA_ALERT:
        return rule
    # The rule of `deploy/monitoring` ends with its default threshold.
    expression, bound, _ = rule["expr"].rpartition(">= ")
    return {**rule, "expr": f"{expression}{bound}{percent / 100:g}"}


def is_managed(state: Management, platform: Platform) -> bool:
    # A platform that is not managed overrides all of its components.
    return state is Management.MANAGED and platform.management_state is Management.MANAGED
