"""Manifests in forms that documentation shows and no release has, read by the apparent meaning of their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpijob.errors import InvalidJob
from mpijob.formats.convert import unrequested_resources
from mpijob.formats.convert.header.request import noted_name
from mpijob.formats.convert.header.units import listed
from mpijob.formats.convert.kubernetes import flat_fields, launch_command
from mpijob.formats.convert.report import Converted, Notes
from mpijob.formats.kubernetes.pod_reader import resources as read_resources
from mpijob.model import Family, MPIJob

_NUMBERS = {
    "numWorkers": "workers", "workers": "workers", "numNodes": "workers", "workerReplicas": "workers",
    "slotsPerWorker": "slots", "numProcPerNode": "slots", "slots": "slots", "processesPerWorker": "slots",
}  # fmt: skip
_FAMILIES = {"openmpi": Family.AUTO, "intel": Family.INTEL, "intelmpi": Family.INTEL, "mpich": Family.MPICH}
_RESOURCES = ("resourcesPerWorker", "resourcesPerNode", "workerResources")
_REAL = "kind TrainJob of trainer.kubeflow.org/v1alpha1 and kind MPIJob of kubeflow.org/v2beta1"


def is_imagined(document: Mapping[str, Any]) -> bool:
    """Return whether a manifest has a form that no release has."""
    kind, version = str(document.get("kind")), str(document.get("apiVersion"))
    spec = document.get("spec")
    if not isinstance(spec, Mapping) or kind not in (
        "TrainJob",
        "MPIJob",
        "TrainingRuntime",
        "ClusterTrainingRuntime",
    ):
        return False
    if "mpiReplicaSpecs" in spec:
        return False
    wrong = version.startswith("kubeflow.org/") and (
        kind != "MPIJob" or not version.startswith("kubeflow.org/v1")
    )
    return wrong or "trainingFramework" in spec or "mpiImplementation" in (spec.get("mlPolicy") or {})


def read(documents: Sequence[Mapping[str, Any]], file: str = "") -> Converted:
    """Return the job that such a manifest means, with every field in the report."""
    notes = Notes()
    fields: dict[str, Any] = {"resources": unrequested_resources.NOTHING}
    for document in documents:
        version = f"{document.get('kind')} of {document.get('apiVersion')}"
        notes.changed("apiVersion", version, "", f"not in any release; the released forms are {_REAL}")
        if document.get("kind") in ("TrainJob", "MPIJob"):
            _metadata(document, fields, notes)
        else:
            name = (document.get("metadata") or {}).get("name", "")
            notes.changed("metadata.name", name, "", "every mpijob job is an MPI job with its own runtime")
        _take(document["spec"], "spec", fields, notes)
    if not fields.get("command") and not fields.get("args"):
        notes.dropped("command", "", "no command is set", "write command", blocks=True)
    if "name" not in fields:
        raise InvalidJob("the manifest has no metadata.name", hint="metadata.name")
    job = launch_command.unwrapped(MPIJob(**fields), notes, "command", once=False)
    entries = (
        *unrequested_resources.first_line(job),
        *notes.entries,
        *unrequested_resources.added_launcher(job),
    )
    return Converted(source="no such API", jobs=(job,), entries=entries, file=file)


def _metadata(document: Mapping[str, Any], fields: dict[str, Any], notes: Notes) -> None:
    metadata = document.get("metadata") or {}
    if metadata.get("name"):
        fields["name"] = noted_name(notes, "metadata.name", str(metadata["name"]))
    if metadata.get("namespace"):
        fields["namespace"] = str(metadata["namespace"])
        notes.exact("metadata.namespace", metadata["namespace"], "namespace")
    for key, value in (metadata.get("labels") or {}).items():
        fields["labels"] = fields.get("labels", {}) | {str(key): str(value)}
        notes.exact(f"metadata.labels.{key}", value, "labels")


def _take(value: Any, path: str, fields: dict[str, Any], notes: Notes) -> None:
    if not isinstance(value, Mapping):
        return
    for key, item in value.items():
        here = f"{path}.{key}"
        if not _known(str(key), item, here, fields, notes):
            _unknown(str(key), item, here, fields, notes)


def _known(key: str, item: Any, here: str, fields: dict[str, Any], notes: Notes) -> bool:
    if key in _NUMBERS and isinstance(item, int):
        fields[_NUMBERS[key]] = item
        notes.exact(here, item, _NUMBERS[key])
    elif key == "mpiImplementation" and str(item).lower() in _FAMILIES:
        fields["mpi"] = _FAMILIES[str(item).lower()]
        notes.exact(here, item, "mpi")
    elif key in (*_RESOURCES, "resources") and isinstance(item, Mapping):
        fields["resources"] = read_resources(
            {"resources": item if {"limits", "requests"} & set(item) else {"limits": item}}
        )
        for leaf in flat_fields.leaves(item, here):
            notes.exact(leaf.path, leaf.shown, "resources")
    elif key == "image" and isinstance(item, str):
        fields["image"] = item
        notes.exact(here, item, "image")
    elif key in ("command", "args"):
        fields[key] = (
            tuple(str(word) for word in item) if isinstance(item, list) else tuple(str(item).split())
        )
        notes.exact(here, item, key)
    elif key == "env" and isinstance(item, (list, Mapping)):
        _env(item, here, fields, notes)
    else:
        return False
    return True


def _env(item: Any, here: str, fields: dict[str, Any], notes: Notes) -> None:
    pairs = (
        item.items()
        if isinstance(item, Mapping)
        else [(one.get("name"), one.get("value", "")) for one in item]
    )
    for name, value in pairs:
        fields["env"] = fields.get("env", {}) | {str(name): str(value)}
        notes.exact(f"{here}.{name}", value, "env")


_NESTED = listed(
    "trainingFramework container trainer mpi mlPolicy template spec worker launcher mpiConfig training"
)


def _unknown(key: str, item: Any, here: str, fields: dict[str, Any], notes: Notes) -> None:
    if isinstance(item, Mapping) and key in _NESTED:
        _take(item, here, fields, notes)
    elif key == "kind" or key == "runtimeRef":
        notes.changed(here, item, "", "every mpijob job is an MPI job with its own runtime")
    elif key == "dataConfig":
        notes.dropped(here, item, "data is a volume in mpijob", "add volumes, or read it in the program")
    elif key == "podGroupPolicy":
        notes.exact(here, item, "gang_timeout_seconds", "all workers always start together or not at all")
    else:
        notes.dropped(here, item, "unknown field", "check whether the job needs it")
