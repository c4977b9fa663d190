"""TrainJobs and their runtimes as our job, with a report on every field; also those forms that exist in no release."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mpijob.formats.convert import own
from mpijob.formats.convert.kubernetes import flat_fields, launch_command
from mpijob.formats.convert.kubernetes.flat_fields import Leaf
from mpijob.formats.convert.report import Converted, Notes
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata.well_known import container_of, is_ours
from mpijob.formats.kubernetes.pod_reader import resources as read_resources
from mpijob.model import Family, MPIJob

_PASSED = ("apiVersion", "kind")
_TRAINER = {
    "image": "image", "args": "command", "command": "command", "numNodes": "workers", "numProcPerNode": "slots",
}  # fmt: skip
_TAKEN = (
    "image", "env", "volumes", "volumeMounts", "nodeSelector", "tolerations", "affinity", "imagePullSecrets",
    "priorityClassName", "terminationGracePeriodSeconds", "command", "args",
)  # fmt: skip


def read(documents: Sequence[Mapping[str, Any]], *, keep: bool, file: str = "") -> Converted:
    """Return the job of one TrainJob, with its runtime where that is among the documents."""
    reading = trainjob.read(documents)
    source = "TrainJob v1alpha1"
    if any(trainjob.is_managed(one) for one in documents if one.get("kind") == trainjob.JOB):
        return own.told(reading, source, file, Family.OPENMPI)
    notes = Notes()
    job = _resourced(reading.job, documents)
    job = launch_command.unwrapped(job, notes, "spec.trainer.command", once=not _starts_ranks(documents))
    for document in documents:
        kind = str(document.get("kind"))
        beyond = flat_fields.paths(reading.foreign.documents, kind)
        prefix = "" if kind == trainjob.JOB else f"{kind}."
        for leaf in flat_fields.leaves(document):
            _tell(notes, leaf, prefix, leaf.path in beyond, keep=keep)
    for remark in reading.remarks:
        todo = "give its manifest in the same file" if "not among" in remark.message else ""
        notes.changed(remark.field, "", remark.field, remark.message, todo)
    if not job.image:
        note = "the image is in the runtime, which is not among the documents"
        notes.dropped("image", "", note, "give the runtime in the same file, or --image", blocks=True)
    return Converted(
        source=source,
        jobs=(job,),
        entries=tuple(notes.entries),
        file=file,
        foreign=reading.foreign,
        family=Family.OPENMPI,
    )


def _starts_ranks(documents: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the runtime is one of ours: its launcher starts the command as every rank."""
    runtime = next((one for one in documents if one.get("kind") != trainjob.JOB), None)
    launcher = trainjob.pod_templates(runtime).get("launcher") or {}
    return is_ours(container_of(launcher.get("spec") or {}))


def _resourced(job: MPIJob, documents: Sequence[Mapping[str, Any]]) -> MPIJob:
    """Return the job with resourcesPerNode for its workers: Trainer gives them to the launcher, which runs ranks."""
    found = next(one for one in documents if one.get("kind") == trainjob.JOB)
    said = (found["spec"].get("trainer") or {}).get("resourcesPerNode")
    if not said:
        return job
    return job.replace(resources=read_resources({"resources": said}), launcher=MPIJob(name="x").launcher)


def _tell(notes: Notes, leaf: Leaf, prefix: str, beyond: bool, *, keep: bool) -> None:
    path = leaf.path
    if path in _PASSED or path.startswith("status"):
        return
    field = f"{prefix}{path}"
    if path.startswith("metadata."):
        if not prefix and path.startswith(("metadata.name", "metadata.labels")):
            ours = (
                "name"
                if path == "metadata.name"
                else "namespace"
                if path == "metadata.namespace"
                else "labels"
            )
            notes.exact(field, leaf.shown, ours)
        elif beyond:
            _beyond(notes, field, leaf, keep=keep)
    elif beyond:
        _beyond(notes, field, leaf, keep=keep)
    elif not prefix:
        _job_field(notes, field, leaf)
    else:
        _runtime_field(notes, field, leaf)


def _beyond(notes: Notes, field: str, leaf: Leaf, *, keep: bool) -> None:
    if keep:
        notes.exact(field, leaf.shown, "", "kept as it is")
    else:
        notes.dropped(field, leaf.shown, "a job has no word for it", "--to trainjob keeps it")


def _job_field(notes: Notes, field: str, leaf: Leaf) -> None:
    path = leaf.path
    if path.startswith("spec.runtimeRef"):
        notes.changed(
            field, leaf.shown, "", "the job brings a runtime of its own, so that its image runs in every role"
        )
    elif path.startswith("spec.trainer.resourcesPerNode"):
        notes.exact(field, leaf.shown, "resources", "for each worker; the launcher runs no ranks")
    elif path.startswith("spec.trainer.env"):
        notes.exact(field, leaf.shown, "env", "every rank gets it, not the launcher alone")
    elif path.startswith("spec.trainer."):
        value = shlex.join(str(word) for word in leaf.value) if isinstance(leaf.value, list) else leaf.shown
        notes.exact(field, value, _TRAINER.get(leaf.name, ""))
    elif path == "spec.activeDeadlineSeconds":
        notes.exact(field, leaf.shown, "deadline_seconds")
    elif path == "spec.suspend":
        notes.exact(field, leaf.shown, "", "a queue holds its jobs back by itself")
    else:
        notes.exact(field, leaf.shown)


def _runtime_field(notes: Notes, field: str, leaf: Leaf) -> None:
    path = leaf.path
    if path.endswith("runLauncherAsNode") and leaf.value:
        notes.changed(
            field, leaf.shown, "workers", "the launcher runs no ranks here: every rank is on a worker"
        )
    elif path.endswith("sshAuthMountPath"):
        notes.changed(field, leaf.shown, "", "launcher and workers have an ssh place of their own")
    elif path.startswith("spec.mlPolicy"):
        notes.exact(
            field,
            leaf.shown,
            {"numProcPerNode": "slots", "mpiImplementation": "mpi"}.get(leaf.name, "workers"),
        )
    elif ".resources." in path or leaf.name in _TAKEN:
        notes.exact(field, leaf.shown, "resources" if ".resources." in path else leaf.name)
    elif leaf.name == "backoffLimit" or leaf.name == "restartPolicy":
        notes.changed(field, leaf.shown, "retry", "a failed job has failed; retry.limit has it tried again")
    else:
        notes.exact(field, leaf.shown, "", "the runtime that is written has the same")
