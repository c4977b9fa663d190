"""The objects of a job's next attempt: copies of the objects of an attempt that admission has judged.

Nothing of them is read from an annotation and nothing is decided anew: what runs again is what ran before, in the
same namespace. Only what tells one attempt from another is replaced: names, the attempt's number, and what the
server, a queue or a user has written onto the first objects since.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from mpijob.formats.admission import pod_templates
from mpijob.formats.kubernetes import volumes
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document

_KEPT_NOTES = (well_known.REST_ANNOTATION, well_known.OWNER_LABEL, well_known.GROUPS_ANNOTATION)
# What Kueue writes into the pods of an MPIJob that it starts.
_PLACING = ("nodeSelector", "tolerations")


def documents(
    job: Mapping[str, Any],
    runtime: Mapping[str, Any] | None,
    *,
    first: str,
    attempt: int,
    workload: Mapping[str, Any] | None = None,
) -> tuple[Document, ...]:
    """Return what is created for an attempt, the job itself last.

    `runtime` is the one that a TrainJob brought, `first` the name of the first attempt's objects, `workload` Kueue's
    record of an MPIJob as it was before Kueue changed it.
    """
    before, name = job["metadata"]["name"], f"{first}-a{attempt}"
    made = _copy(job, job["apiVersion"], job["kind"], before, name, attempt)
    if workload is not None and job["kind"] == "MPIJob":
        _restore_placing(made, workload)
    if runtime is None:
        return (made,)
    return (_copy(runtime, job["apiVersion"], "TrainingRuntime", before, name, attempt), made)


def network_policy(policy: Mapping[str, Any], before: str, *, first: str, attempt: int) -> Document:
    """Return the NetworkPolicy of an attempt, from that of the attempt before, whose job object is called so."""
    return _copy(policy, "networking.k8s.io/v1", "NetworkPolicy", before, f"{first}-a{attempt}", attempt)


def _copy(document: Mapping[str, Any], api: str, kind: str, before: str, name: str, attempt: int) -> Document:
    metadata = document["metadata"]
    notes = metadata.get("annotations") or {}
    made: Document = {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name + str(metadata["name"]).removeprefix(before),
            "namespace": metadata["namespace"],
            "labels": _numbered(metadata.get("labels") or {}, attempt),
        },
        "spec": copy.deepcopy(dict(document["spec"])),
    }
    if kept := {key: notes[key] for key in _KEPT_NOTES if key in notes}:
        made["metadata"]["annotations"] = kept
    _rename(made, kind, before, name)
    for _, template in pod_templates.templates(made, kind):
        _renumber_pods(template, before, name, attempt)
    return made


def _numbered(labels: Mapping[str, str], attempt: int) -> dict[str, str]:
    return {key: str(attempt) if key == well_known.ATTEMPT_LABEL else value for key, value in labels.items()}


def _rename(made: Document, kind: str, before: str, name: str) -> None:
    """Replace what names the attempt's own objects, and drop what was written onto the job after its creation."""
    spec = made["spec"]
    match kind:
        case "TrainJob":
            spec.pop("suspend", None)
            if spec["runtimeRef"].get("name") == before:
                spec["runtimeRef"]["name"] = name
            patches = [patch for patch in spec.get("runtimePatches") or () if not _is_of_queue(patch)]
            spec.pop("runtimePatches", None)
            spec |= {"runtimePatches": patches} if patches else {}
        case "MPIJob":
            (spec.get("runPolicy") or {}).pop("suspend", None)
        case "NetworkPolicy":
            for labels in _selectors(spec):
                for key in well_known.ENGINE_NAMES.values():
                    if labels.get(key) == before:
                        labels[key] = name


def _is_of_queue(patch: Mapping[str, Any]) -> bool:
    return str(patch.get("manager", "")).startswith("kueue.")


def _selectors(value: Any) -> Iterator[Document]:
    """Yield the labels by which a NetworkPolicy selects pods, wherever they stand."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "matchLabels":
                yield inner
            yield from _selectors(inner)
    elif isinstance(value, list):
        for one in value:
            yield from _selectors(one)


def _renumber_pods(template: Any, before: str, name: str, attempt: int) -> None:
    metadata = template.get("metadata") or {}
    metadata["labels"] = _numbered(metadata.get("labels") or {}, attempt)
    spec = template.get("spec") or {}
    for volume in spec.get("volumes") or ():
        match volume:
            case {"name": volumes.KEY_VOLUME, "secret": {"secretName": str(key)} as secret}:
                secret["secretName"] = name + key.removeprefix(before)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for variable in container.get("env") or ():
            match variable:
                case {"name": "MPIJOB_ATTEMPT"}:
                    variable["value"] = str(attempt)
                case {"name": "MPIJOB_SELF", "value": str(value)} if value == f"{before}-launcher.{before}":
                    variable["value"] = f"{name}-launcher.{name}"


def _restore_placing(job: Document, workload: Mapping[str, Any]) -> None:
    """Take out of an MPIJob's pods what Kueue chose for the attempt before; it chooses again."""
    original = {
        pod_set["name"]: pod_set["template"]["spec"] for pod_set in workload["spec"].get("podSets") or ()
    }
    for role, replica in job["spec"]["mpiReplicaSpecs"].items():
        pod, told = replica["template"]["spec"], original.get(role.lower())
        for field in _PLACING if told is not None else ():
            pod.pop(field, None)
            if told is not None and field in told:
                pod[field] = copy.deepcopy(told[field])
