"""TrainJobs and their runtimes as jobs, with a report on every field.

The runtime decides how the command is started; `trainjob_nodes` has the runtimes without a launcher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpijob.formats.convert import own_exports, unrequested_resources
from mpijob.formats.convert.kubernetes import flat_fields, launch_command, naming, trainjob_nodes
from mpijob.formats.convert.kubernetes.trainjob_fields import FieldReporter
from mpijob.formats.convert.report import Converted, Notes
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata.well_known import container_of, is_ours
from mpijob.formats.kubernetes.pod_reader import resources as read_resources
from mpijob.model import Family, MPIJob
from mpijob.model.spec.command import own_launcher

_SOURCE = "TrainJob v1alpha1"


def read(documents: Sequence[Mapping[str, Any]], *, keep: bool, file: str = "") -> Converted:
    """Return the job of a TrainJob, with its runtime if that is among the documents."""
    if any(trainjob.is_managed(document) for document in documents if document.get("kind") == trainjob.JOB):
        return own_exports.job_of(trainjob.read(documents), _SOURCE, file, Family.OPENMPI)
    notes = Notes()
    kinds = [str(document.get("kind")) for document in documents]
    found = tuple(
        naming.named(document, notes)
        if document.get("kind") == trainjob.JOB
        else {**document, "kind": trainjob.RUNTIME}
        for document in documents
    )
    reading = trainjob.read(found)
    runtime = found[1] if len(found) > 1 else None
    name = trainjob_nodes.framework(found[0], runtime)
    job = _started(reading.job, found, name, notes)
    reporter = FieldReporter(
        job,
        notes,
        found,
        {
            kind: flat_fields.paths(reading.foreign.documents, kind)
            for kind in (trainjob.JOB, trainjob.RUNTIME)
        },
        framework=name,
        step="launcher" if name == "mpi" else trainjob_nodes.trainer_step(runtime),
        keep=keep,
    )
    for kind, document in zip(kinds, found, strict=True):
        for leaf in flat_fields.leaves(document):
            reporter.tell(kind, leaf, "" if kind == trainjob.JOB else f"{kind}.")
    _remarks(reading, job, name, notes)
    return Converted(
        source=_SOURCE,
        jobs=(job,),
        entries=(*unrequested_resources.first_line(job), *notes.entries),
        file=file,
        foreign=reading.foreign,
        family=Family.OPENMPI,
    )


def _remarks(reading: trainjob.Reading, job: MPIJob, name: str, notes: Notes) -> None:
    for remark in reading.remarks:
        todo = "add its manifest to the same file" if "not among" in remark.message else ""
        notes.changed(remark.field, "", remark.field, remark.message, todo)
    if not job.image:
        note = "the image is set in the runtime, which is not in the file"
        notes.dropped("image", "", note, "add the runtime to the same file, or use --image", blocks=True)
    if not name and own_launcher(job.argv) is None and job.world > 1:
        note = (
            "the runtime defines whether a launcher or every node runs the command, and it is not in the file"
        )
        notes.dropped("spec.runtimeRef", "", note, "add the runtime to the same file", blocks=True)
    if job.launcher == MPIJob(name="x").launcher:
        notes.extend(unrequested_resources.added_launcher(job))


def _started(job: MPIJob, documents: Sequence[Mapping[str, Any]], name: str, notes: Notes) -> MPIJob:
    """Return the job with the command as the runtime's framework starts it."""
    runtime = documents[1] if len(documents) > 1 else None
    if name not in ("mpi", ""):
        return trainjob_nodes.on_every_node(job, documents[0], runtime, name, notes)
    trainer = documents[0]["spec"].get("trainer") or {}
    if trainer.get("image"):
        job = job.replace(image=str(trainer["image"]))
    if resources := trainer.get("resourcesPerNode"):
        # Trainer applies them to its launcher, which runs ranks; our launcher runs none.
        job = job.replace(
            resources=read_resources({"resources": resources}), launcher=MPIJob(name="x").launcher
        )
    once = bool(name) and not _starts_ranks(runtime)
    return launch_command.unwrapped(job, notes, "spec.trainer.command", once=once)


def _starts_ranks(runtime: Mapping[str, Any] | None) -> bool:
    """Return whether the runtime is ours: its launcher starts the command as every rank."""
    launcher = trainjob.pod_templates(runtime).get("launcher") or {}
    return is_ours(container_of(launcher.get("spec") or {}))
