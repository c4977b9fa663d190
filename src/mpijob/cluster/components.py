"""What the platform is made of, as documents: our own services, roles, definitions, runtimes and queues."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

from mpijob.cluster import crds, manifests
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.runtimes import builtin as shipped
from mpijob.model.platform.governance import Management, Platform, Queue, Service

KUEUE_API = "kueue.x-k8s.io/v1beta2"
FLAVOR = "mpijob-default"
QUOTA_ALARM = "MPIJobQuotaNearlyConsumed"
FOLDERS = ("roles", "audit")  # of deploy/base: applied as they are


def services(platform: Platform) -> dict[str, Service]:
    """Return what the platform says of each service of ours."""
    told = platform.services
    return {
        "controller": told.controller,
        "admission": told.admission,
        "recorder": told.recorder,
        "page": told.page,
        "broker": told.broker,
    }


def definitions() -> list[Document]:
    """Return the definitions of our resources."""
    return [*crds.documents()]


def folder(name: str, deploy: Path, *, openshift: bool) -> Path:
    """Return where a service's manifests are; some are others on OpenShift."""
    own = deploy / "openshift" / name
    return own if openshift and own.is_dir() else deploy / "base" / name


def service(wanted: Service, source: Path, platform: Platform) -> list[Document]:
    """Return the documents of one service, with the image and the number that the platform says."""
    documents = manifests.with_images(manifests.folder(source), "", platform.image)
    return [_scaled(one, wanted.replicas) for one in documents]


def ranged(document: Document) -> Document:
    """Return a Deployment that names no group for its volumes: OpenShift gives one out of the namespace's range."""
    if document["kind"] != "Deployment":
        return document
    whole = copy.deepcopy(document)
    whole["spec"]["template"]["spec"].get("securityContext", {}).pop("fsGroup", None)
    return whole


def _scaled(document: Document, replicas: int) -> Document:
    if document["kind"] != "Deployment":
        return document
    return {**document, "spec": {**document["spec"], "replicas": replicas}}


def queues(platform: Platform) -> list[Document]:
    """Return Kueue's objects for the queues that the platform names."""
    if not platform.queues:
        return []
    flavor = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}
    return [flavor, *(one for queue in platform.queues for one in _queue(queue))]


def _queue(queue: Queue) -> Iterator[Document]:
    resources = [{"name": name, "nominalQuota": amount} for name, amount in sorted(queue.quota.items())]
    spec: Document = {"namespaceSelector": {}}
    if resources:
        covered = [one["name"] for one in resources]
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
    """Return the runtimes that ship, for TrainJobs that others write; OpenShift gives pods their user itself."""
    user = None if openshift else well_known.PLAIN_USER
    made = [shipped.document(one, user=user) for one in shipped.SHIPPED if one.kind == shipped.KIND]
    return manifests.with_images(made, platform.registry)


def monitoring(deploy: Path, namespace: str, platform: Platform) -> list[Document]:
    """Return what lets Prometheus read us: who is asked, rules, dashboards; the alarm for quotas at its percentage."""
    found = (manifests.in_namespace(one, namespace) for one in manifests.folder(deploy / "monitoring"))
    return [_alarmed(one, platform.monitoring.quota_alert_percent) for one in found]


def _alarmed(document: Document, percent: float) -> Document:
    if document["kind"] != "PrometheusRule":
        return document
    groups = [
        {**group, "rules": [_with_percentage(rule, percent) for rule in group["rules"]]}
        for group in document["spec"]["groups"]
    ]
    return {**document, "spec": {**document["spec"], "groups": groups}}


def _with_percentage(rule: Document, percent: float) -> Document:
    if rule.get("alert") != QUOTA_ALARM:
        return rule
    expression, bound, _ = rule["expr"].rpartition(">= ")
    return {**rule, "expr": f"{expression}{bound}{percent / 100:g}"}


def is_kept(state: Management, platform: Platform) -> bool:
    """Whether a part is to be there."""
    return state is Management.MANAGED and platform.management_state is Management.MANAGED
