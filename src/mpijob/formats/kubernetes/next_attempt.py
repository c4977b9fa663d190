"""The objects of a job's next attempt: copies of the previous attempt's objects, which admission has checked.

Nothing is read from an annotation and nothing is decided again: the same runs in the same namespace. Only names, the
attempt's number, and what the API server, a queue or users have added since are replaced.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from mpijob.formats.admission import pod_templates
from mpijob.formats.kubernetes import volumes
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document

_KEPT_ANNOTATIONS = (well_known.REST_ANNOTATION, well_known.OWNER_LABEL, well_known.GROUPS_ANNOTATION)
# Kueue sets these in the pods of an MPIJob when it starts the job.
_SET_BY_KUEUE = ("nodeSelector", "tolerations")


def documents(
    job: Mapping[str, Any],
    runtime: Mapping[str, Any] | None,
    *,
    first: str,
    attempt: int,
    workload: Mapping[str, Any] | None = None,
) -> tuple[Document, ...]:
    """Return the objects of an attempt in the order of creation.

    `runtime` is a TrainJob's own, `first` the name of the first attempt's objects, `workload` Kueue's Workload of an
    MPIJob, which has the pods as they were before Kueue changed them.
    """
    previous, name = job["metadata"]["name"], f"{first}-a{attempt}"
    copied = _copy(job, job["apiVersion"], job["kind"], previous, name, attempt)
    if workload is not None and job["kind"] == "MPIJob":
        _restore_before_kueue(copied, workload)
    if runtime is None:
        return (copied,)
    return (_copy(runtime, job["apiVersion"], "TrainingRuntime", previous, name, attempt), copied)


def network_policy(policy: Mapping[str, Any], previous: str, *, first: str, attempt: int) -> Document:
    """Return an attempt's NetworkPolicy from the previous attempt's, whose job object is named `previous`."""
    return _copy(policy, "networking.k8s.io/v1", "NetworkPolicy", previous, f"{first}-a{attempt}", attempt)


def _copy(
    document: Mapping[str, Any], api: str, kind: str, previous: str, name: str, attempt: int
) -> Document:
    metadata = document["metadata"]
    annotations = metadata.get("annotations") or {}
    copied: Document = {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name + str(metadata["name"]).removeprefix(previous),
            "namespace": metadata["namespace"],
            "labels": _numbered(metadata.get("labels") or {}, attempt),
        },
        "spec": copy.deepcopy(dict(document["spec"])),
    }
    if kept := {key: annotations[key] for key in _KEPT_ANNOTATIONS if key in annotations}:
        copied["metadata"]["annotations"] = kept
    _rename(copied, kind, previous, name)
    for _, template in pod_templates.templates(copied, kind):
        _renumber_pods(template, previous, name, attempt)
    return copied


def _numbered(labels: Mapping[str, str], attempt: int) -> dict[str, str]:
    return {key: str(attempt) if key == well_known.ATTEMPT_LABEL else value for key, value in labels.items()}


def _rename(copied: Document, kind: str, previous: str, name: str) -> None:
    """Replace the names of the attempt's own objects, and remove what was added to the job after its creation."""
    spec = copied["spec"]
    match kind:
        case "TrainJob":
            spec.pop("suspend", None)
            if spec["runtimeRef"].get("name") == previous:
                spec["runtimeRef"]["name"] = name
            patches = [patch for patch in spec.get("runtimePatches") or () if not _is_of_queue(patch)]
            spec.pop("runtimePatches", None)
            spec |= {"runtimePatches": patches} if patches else {}
        case "MPIJob":
            (spec.get("runPolicy") or {}).pop("suspend", None)
        case "NetworkPolicy":
            for labels in _selectors(spec):
                for key in well_known.ENGINE_NAMES.values():
                    if labels.get(key) == previous:
                        labels[key] = name


def _is_of_queue(patch: Mapping[str, Any]) -> bool:
    return str(patch.get("manager", "")).startswith("kueue.")


def _selectors(value: Any) -> Iterator[Document]:
    """Yield the labels of each selector in a NetworkPolicy."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "matchLabels":
                yield inner
            yield from _selectors(inner)
    elif isinstance(value, list):
        for one in value:
            yield from _selectors(one)


def _renumber_pods(template: Any, previous: str, name: str, attempt: int) -> None:
    metadata = template.get("metadata") or {}
    metadata["labels"] = _numbered(metadata.get("labels") or {}, attempt)
    spec = template.get("spec") or {}
    for volume in spec.get("volumes") or ():
        match volume:
            case {"name": volumes.KEY_VOLUME, "secret": {"secretName": str(key)} as secret}:
                secret["secretName"] = name + key.removeprefix(previous)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for variable in container.get("env") or ():
            match variable:
                case {"name": "MPIJOB_ATTEMPT"}:
                    variable["value"] = str(attempt)
                case {"name": "MPIJOB_SELF", "value": str(value)} if (
                    value == f"{previous}-launcher.{previous}"
                ):
                    variable["value"] = f"{name}-launcher.{name}"


def _restore_before_kueue(job: Document, workload: Mapping[str, Any]) -> None:
    # Kueue chooses flavors, and with them node labels and tolerations, for each attempt.
    original_specs = {
        pod_set["name"]: pod_set["template"]["spec"] for pod_set in workload["spec"].get("podSets") or ()
    }
    for role, replica in job["spec"]["mpiReplicaSpecs"].items():
        pod, original_spec = replica["template"]["spec"], original_specs.get(role.lower())
        for field in _SET_BY_KUEUE if original_spec is not None else ():
            pod.pop(field, None)
            if original_spec is not None and field in original_spec:
                pod[field] = copy.deepcopy(original_spec[field])
