"""How the operator detects engines: whether they are installed, who manages them, and which jobs need them.

They are installed and removed by `reconcile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mpijob.backends.kubernetes.client.api import ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.cluster.apply import CRD, ObjectClient, component_of
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.platform.governance import Engine, Engines

DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
DSC_API = "datasciencecluster.opendatahub.io"
DSC_CRD = f"datascienceclusters.{DSC_API}"
_FINISHED_CONDITIONS = ("Complete", "Completed", "Succeeded", "Failed", "Finished")


class EngineInfo(NamedTuple):
    """An engine: its field in the platform, its CRD, its job kind, its Deployment."""

    name: str
    crd: str
    # `apiVersion/plural` of the objects that must end before the engine is removed.
    job_kind: str
    deployment: str
    # Its name in a DataScienceCluster.
    component: str = ""


ENGINES = (
    EngineInfo(
        "jobset", "jobsets.jobset.x-k8s.io", "jobset.x-k8s.io/v1alpha2/jobsets", "jobset-controller-manager"
    ),
    EngineInfo(
        "trainer",
        "trainjobs.trainer.kubeflow.org",
        "trainer.kubeflow.org/v1alpha1/trainjobs",
        "kubeflow-trainer-controller-manager",
        "trainer",
    ),
    EngineInfo(
        "kueue",
        "workloads.kueue.x-k8s.io",
        "kueue.x-k8s.io/v1beta2/workloads",
        "kueue-controller-manager",
        "kueue",
    ),
    EngineInfo("mpi-operator", "mpijobs.kubeflow.org", "kubeflow.org/v2beta1/mpijobs", "mpi-operator"),
)


def engine_settings(known: EngineInfo, engines: Engines) -> Engine:
    settings: Engine = getattr(engines, known.name.replace("-", "_"))
    return settings


def external_manager(objects: ObjectClient, known: EngineInfo) -> str:
    """Return who manages an engine that is not ours; "" if nobody does."""
    # The DataScienceCluster first: before it has installed the engine, there is no CRD to look at.
    if known.component and (owner := _data_science_cluster(objects, known.component)):
        return owner
    crd = objects.api.find(CRD.path("", known.crd))
    if crd is None or component_of(crd) == known.name:
        return ""
    managers = [entry.get("manager", "") for entry in crd["metadata"].get("managedFields") or ()]
    return f"another manager ({managers[0]})" if managers and managers[0] else "another manager"


def _data_science_cluster(objects: ObjectClient, component: str) -> str:
    """Return the DataScienceCluster that manages a component, or ""."""
    crd = objects.api.find(CRD.path("", DSC_CRD))
    if crd is None:
        return ""
    version = next(item["name"] for item in crd["spec"]["versions"] if item["served"])
    try:
        found = objects.api.list(f"/apis/{DSC_API}/{version}/datascienceclusters").items
    except ApiError as error:
        if error.status == 404:
            return ""
        raise
    for item in found:
        settings = ((item.get("spec") or {}).get("components") or {}).get(component) or {}
        if settings.get("managementState") == "Managed":
            return f"DataScienceCluster {item['metadata']['name']}"
    return ""


class EngineState(NamedTuple):
    """The observed state of an engine: installed, its version, available."""

    installed: bool
    version: str = ""
    ready: bool = False


def engine_state(objects: ObjectClient, known: EngineInfo) -> EngineState:
    """Return the observed state of an engine, also of one that others manage."""
    if objects.api.find(CRD.path("", known.crd)) is None:
        return EngineState(False)
    installed = deployments(objects, known)
    if not installed:
        return EngineState(True)
    return EngineState(True, version_of(installed[0]), is_available(installed[0]))


def deployments(objects: ObjectClient, known: EngineInfo) -> list[Document]:
    return objects.api.list(DEPLOYMENT.path(), fields=f"metadata.name={known.deployment}").items


def version_of(deployment: Document) -> str:
    """Return the version from a Deployment's image tag or label."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    image = str(containers[0].get("image", "")).partition("@")[0]
    tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    labels = deployment["metadata"].get("labels") or {}
    return tag or str(labels.get("app.kubernetes.io/version", ""))


def is_available(deployment: Mapping[str, Any]) -> bool:
    """Return whether the newest generation of a Deployment is rolled out and available."""
    status = deployment.get("status") or {}
    # Until then the status is that of the previous spec.
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return False
    wanted_replicas = deployment["spec"].get("replicas", 1)
    return bool(
        status.get("availableReplicas", 0) >= wanted_replicas
        and status.get("updatedReplicas", 0) >= wanted_replicas
    )


def unfinished_jobs(objects: ObjectClient, known: EngineInfo) -> list[str]:
    """Return the objects that an engine has not finished: it must not be removed before."""
    try:
        items = objects.api.list(f"/apis/{known.job_kind}").items
    except ApiError as error:
        if error.status == 404:
            return []
        raise
    return [
        f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        for item in items
        if not _has_ended(item)
    ]


def _has_ended(item: Document) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] in _FINISHED_CONDITIONS and condition["status"] == "True"
        for condition in conditions
    )
