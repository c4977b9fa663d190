"""The engines as the operator knows them: how to see that one is there, whose it is, and who still needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mpijob.backends.kubernetes.client.api import ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.cluster.apply import CRD, Objects, mark_of
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.platform.governance import Engine, Engines

DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
DSC_API = "datasciencecluster.opendatahub.io"
DSC_CRD = f"datascienceclusters.{DSC_API}"
_ENDED = ("Complete", "Completed", "Succeeded", "Failed", "Finished")


class Known(NamedTuple):
    """One engine: its field in the platform, the definition that shows it, its work, its Deployment."""

    name: str
    crd: str
    work: str  # `apiVersion/plural` of what it must see to its end
    deployment: str
    component: str = ""  # in a DataScienceCluster


KNOWN = (
    Known(
        "jobset", "jobsets.jobset.x-k8s.io", "jobset.x-k8s.io/v1alpha2/jobsets", "jobset-controller-manager"
    ),
    Known(
        "trainer",
        "trainjobs.trainer.kubeflow.org",
        "trainer.kubeflow.org/v1alpha1/trainjobs",
        "kubeflow-trainer-controller-manager",
        "trainer",
    ),
    Known(
        "kueue",
        "workloads.kueue.x-k8s.io",
        "kueue.x-k8s.io/v1beta2/workloads",
        "kueue-controller-manager",
        "kueue",
    ),
    Known("mpi-operator", "mpijobs.kubeflow.org", "kubeflow.org/v2beta1/mpijobs", "mpi-operator"),
)


def wanted(known: Known, engines: Engines) -> Engine:
    """Return what the platform says of an engine."""
    found: Engine = getattr(engines, known.name.replace("-", "_"))
    return found


def keeper(objects: Objects, known: Known) -> str:
    """Return who keeps an engine that is not ours; "" where nobody does and we may."""
    if known.component and (owner := _data_science_cluster(objects, known.component)):
        return owner
    crd = objects.api.find(CRD.path("", known.crd))
    if crd is None or mark_of(crd) == known.name:
        return ""
    managers = [one.get("manager", "") for one in crd["metadata"].get("managedFields") or ()]
    return f"somebody else ({managers[0]})" if managers and managers[0] else "somebody else"


def _data_science_cluster(objects: Objects, component: str) -> str:
    """Return the DataScienceCluster that keeps a component, if there is one."""
    crd = objects.api.find(CRD.path("", DSC_CRD))
    if crd is None:
        return ""
    version = next(one["name"] for one in crd["spec"]["versions"] if one["served"])
    try:
        found = objects.api.list(f"/apis/{DSC_API}/{version}/datascienceclusters").items
    except ApiError as error:
        if error.status == 404:
            return ""
        raise
    for one in found:
        part = ((one.get("spec") or {}).get("components") or {}).get(component) or {}
        if part.get("managementState") == "Managed":
            return f"DataScienceCluster {one['metadata']['name']}"
    return ""


class Seen(NamedTuple):
    """An engine as it is found: whether it is there, its version, whether it works."""

    there: bool
    version: str = ""
    ready: bool = False


def seen(objects: Objects, known: Known) -> Seen:
    """Return how an engine is found, whoever keeps it."""
    if objects.api.find(CRD.path("", known.crd)) is None:
        return Seen(False)
    listed = deployments(objects, known)
    if not listed:
        return Seen(True)
    return Seen(True, version_of(listed[0]), is_available(listed[0]))


def deployments(objects: Objects, known: Known) -> list[Document]:
    """Return the Deployments of an engine, wherever they are."""
    return objects.api.list(DEPLOYMENT.path(), fields=f"metadata.name={known.deployment}").items


def version_of(deployment: Document) -> str:
    """Return the version that a Deployment's image, or its label, names."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    image = str(containers[0].get("image", "")).partition("@")[0]
    tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    labels = deployment["metadata"].get("labels") or {}
    return tag or str(labels.get("app.kubernetes.io/version", ""))


def is_available(deployment: Mapping[str, Any]) -> bool:
    """Whether the newest state of a Deployment is rolled out and available."""
    status = deployment.get("status") or {}
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return False
    wanted_replicas = deployment["spec"].get("replicas", 1)
    return bool(
        status.get("availableReplicas", 0) >= wanted_replicas
        and status.get("updatedReplicas", 0) >= wanted_replicas
    )


def unfinished(objects: Objects, known: Known) -> list[str]:
    """Return the work that an engine has not seen to its end: it must not go before."""
    try:
        listed = objects.api.list(f"/apis/{known.work}").items
    except ApiError as error:
        if error.status == 404:
            return []
        raise
    return [
        f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in listed if not _has_ended(one)
    ]


def _has_ended(work: Document) -> bool:
    conditions = (work.get("status") or {}).get("conditions") or ()
    return any(one["type"] in _ENDED and one["status"] == "True" for one in conditions)
