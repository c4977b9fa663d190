"""Converts MPIJobs of earlier versions (v1, v1alpha2, v1alpha1) to v2beta1, with a report."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from mpijob.errors import InvalidJob
from mpijob.formats.convert.report import Notes
from mpijob.formats.kubernetes.mpijob import API

OLD = ("kubeflow.org/v1", "kubeflow.org/v1alpha2", "kubeflow.org/v1alpha1")
IMAGINED = (
    "kubeflow.org/v2alpha1",
    "kubeflow.org/v2",
    "kubeflow.org/v1beta1",
    "trainer.kubeflow.org/v1alpha1",
)
_MOVED = ("cleanPodPolicy", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_LIBRARIES = {"OpenMPI": "OpenMPI", "IntelMPI": "Intel", "Intel": "Intel", "MPICH": "MPICH"}


def modern(document: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """Return the document as v2beta1; a v2beta1 document is returned unchanged."""
    version = str(document.get("apiVersion", ""))
    found = copy.deepcopy(dict(document))
    if not isinstance(found.get("metadata"), dict) or not isinstance(found.get("spec"), dict):
        raise InvalidJob(
            "the MPIJob has no metadata or no spec",
            hint="run kubectl apply --dry-run=server -f FILE to find the position",
        )
    if version == API:
        return found
    if version not in (*OLD, *IMAGINED):
        raise InvalidJob(f"unknown MPIJob version: {version or 'none'}", hint=f"use {API}")
    if version in IMAGINED:
        notes.changed("apiVersion", version, API, "this version is not in any release; it is read as v2beta1")
    else:
        note = "the old version started ranks with kubectl exec; ranks are now started by SSH, so the image needs sshd"
        notes.changed(
            "apiVersion", version, API, note, "see docs/how-to/users/cluster.md for what an image needs"
        )
    found["apiVersion"] = API
    if version == "kubeflow.org/v1alpha1":
        _oldest(found, notes)
    _moved(found["spec"], notes)
    return found


def _moved(spec: dict[str, Any], notes: Notes) -> None:
    policy = dict(spec.get("runPolicy") or {})
    for field in _MOVED:
        if field in spec:
            value = spec.pop(field)
            if field in policy:
                note = f"runPolicy.{field} takes precedence: {policy[field]}"
                notes.dropped(f"spec.{field}", value, note, "nothing; you can remove it")
            policy.setdefault(field, value)
    if policy:
        spec["runPolicy"] = policy
    if "mpiDistribution" in spec:
        _distribution(spec, str(spec.pop("mpiDistribution")), notes)
    main = spec.pop("mainContainer", None)
    if main:
        _first(spec, str(main), notes)


def _distribution(spec: dict[str, Any], stated: str, notes: Notes) -> None:
    found = _LIBRARIES.get(stated)
    spec["mpiImplementation"] = found or "OpenMPI"
    if found:
        notes.changed(
            "spec.mpiDistribution", stated, "mpi", f"since v2beta1 this is mpiImplementation: {found}"
        )
    else:
        todo = f"set mpi to one of {', '.join(sorted({*_LIBRARIES.values()}))}"
        notes.dropped("spec.mpiDistribution", stated, "unknown MPI library", todo)


def _first(spec: dict[str, Any], main: str, notes: Notes) -> None:
    """Move the container of `mainContainer` to the front: v2beta1 always uses the first."""
    for replica in (spec.get("mpiReplicaSpecs") or {}).values():
        pod = (replica.get("template") or {}).get("spec") or {}
        pod["containers"] = sorted(pod.get("containers") or [], key=lambda one: one.get("name") != main)
    notes.exact("spec.mainContainer", main, "", "the first container is the main container")


def _oldest(found: dict[str, Any], notes: Notes) -> None:
    """Convert v1alpha1: one template for both roles, and processing units instead of resources."""
    spec = found["spec"]
    units = _one_of(spec, ("gpus", "processingUnits"), notes)
    per_node = _one_of(spec, ("gpusPerNode", "processingUnitsPerNode"), notes)
    kind, replicas = spec.pop("processingResourceType", None), spec.pop("replicas", None)
    template = spec.pop("template", None) or {}
    workers, each = _split(units[1], per_node[1], replicas)
    name = "cpu" if kind == "cpu" else "nvidia.com/gpu" if kind in ("gpu", None) else str(kind)
    stated = (units, per_node, ("processingResourceType", kind), ("replicas", replicas))
    for field, value in stated:
        if value is not None:
            amounts = f" with {each} {name} each" if each else ""
            notes.changed(f"spec.{field}", value, "workers, resources", f"{workers} workers{amounts}")
    worker = copy.deepcopy(template)
    for container in (worker.get("spec") or {}).get("containers") or []:
        # The one template has the launcher's command; workers run sshd.
        container.pop("command", None)
        container.pop("args", None)
        if each:
            limits = container.setdefault("resources", {}).setdefault("limits", {})
            limits.setdefault(name, each)
    spec.setdefault("slotsPerWorker", each or 1)
    master = spec.pop("launcherOnMaster", None)
    if master:
        notes.dropped(
            "spec.launcherOnMaster", "true", "the launcher runs on any node with capacity", "set placement"
        )
    elif master is not None:
        notes.exact("spec.launcherOnMaster", "false", "", "the launcher runs on any node with capacity")
    spec["mpiReplicaSpecs"] = {
        "Launcher": {"replicas": 1, "template": template},
        "Worker": {"replicas": workers, "template": worker},
    }


def _one_of(spec: dict[str, Any], fields: tuple[str, ...], notes: Notes) -> tuple[str, Any]:
    """Remove two spellings of the same field and return the value; the operator reads the first."""
    found = [(field, spec.pop(field)) for field in fields if field in spec]
    for field, value in found[1:]:
        notes.dropped(f"spec.{field}", value, f"{found[0][0]} already sets it", "nothing; you can remove it")
    return found[0] if found else (fields[0], None)


def _split(units: Any, per_node: Any, replicas: Any) -> tuple[int, int]:
    if units:
        total = int(units)
        each = min(total, int(per_node or 8))
        return max(1, -(-total // each)), each
    return int(replicas or 1), int(per_node or 0)
