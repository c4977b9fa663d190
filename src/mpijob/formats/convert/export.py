"""Writes a job in another system's form, with a report on each field that the job sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from mpijob.errors import InvalidJob
from mpijob.formats.convert import export_pbs, export_slurm, own_exports
from mpijob.formats.convert.report import FieldEntry, FieldOutcome
from mpijob.formats.jobfile import jobfile_writer
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.passthrough import Foreign
from mpijob.model import Family, MPIJob
from mpijob.model.spec.quantity import NONE

BATCH_SCRIPTS = ("sbatch", "pbs")
TARGETS = ("job", "trainjob", "mpijob", *BATCH_SCRIPTS)
_KUBECTL = "a manifest cannot express it; mpijob does it"
_OURS = "create the job with mpijob create"
_NEEDS_US = {
    "retry.limit": (_KUBECTL, _OURS),
    "requeue_on_lost_worker": (_KUBECTL, _OURS),
    "keep_on_failure_seconds": (_KUBECTL, _OURS),
    "code.git.url": (
        "a manifest does not contain files of a git repository",
        _OURS + ", or put the files into the image",
    ),
    "code.path": (
        "a manifest does not contain files of your machine",
        _OURS + ", or put the files into the image",
    ),
    "code.files": (
        "a manifest does not contain files of your machine",
        _OURS + ", or put the files into the image",
    ),
    "retention.record_days": ("mpijob keeps the records", _OURS),
    "retention.logs_days": ("mpijob keeps the logs", _OURS),
}
_CHANGED = {
    "signal.name": "each rank gets it when its pod is stopped, not before a deadline",
    "signal.seconds_before": "pods get the signal when they are stopped, not earlier",
    "priority": "a class of this name must exist on the cluster",
    "queue": "a queue of this name must exist on the cluster",
    "deadline_seconds": "counted from creation, so it includes the time in the queue",
}


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The text, the documents if there are any, and the report."""

    text: str
    entries: tuple[FieldEntry, ...] = ()
    documents: tuple[dict[str, Any], ...] = ()
    ending: str = ".yaml"


def write(
    job: MPIJob,
    to: str,
    *,
    format: str = "yaml",
    foreign: Foreign | None = None,
    family: Family = Family.AUTO,
    user: int | None = None,
    script: str | None = None,
) -> Written:
    """Return a job in one of the forms.

    `user` is the user ID of pods, None if the cluster assigns one; `script` is the text of the job's script.
    """
    if to == "job":
        return Written(
            text=jobfile_writer.write(job, format), ending=".json" if format == "json" else ".yaml"
        )
    if to in BATCH_SCRIPTS:
        writer = export_slurm if to == "sbatch" else export_pbs
        text, entries = writer.write(_asking_batch(job), script)
        return Written(text=text, entries=entries, ending=f".{to}")
    if to not in TARGETS:
        raise InvalidJob(f"unknown format '{to}'", hint=f"one of {', '.join(TARGETS)}")
    shape = well_known.Shape(family=_library(job, family), user=user)
    return _manifests(job, to, format, foreign or Foreign(), shape)


def _asking_batch(job: MPIJob) -> MPIJob:
    # `none` means to batch systems: all memory of the node (0), and one core for each rank.
    memory = 0 if job.resources.memory == NONE else job.resources.memory
    cpu = job.cores_per_rank * job.slots if job.resources.cpu == NONE else job.resources.cpu
    return job.replace(resources=job.resources.replace(cpu=cpu, memory=memory))


def _library(job: MPIJob, family: Family) -> Family:
    named = job.mpi if job.mpi not in (Family.AUTO, Family.CUSTOM) else family
    return Family.OPENMPI if named in (Family.AUTO, Family.CUSTOM) else named


def _manifests(job: MPIJob, to: str, format: str, foreign: Foreign, shape: well_known.Shape) -> Written:
    writers: dict[str, Callable[..., tuple[dict[str, Any], ...]]] = {
        "trainjob": trainjob.write,
        "mpijob": mpijob.write,
    }
    documents = writers[to](job, shape, foreign)
    return Written(text=shown(documents, format), entries=tuple(_entries(job)), documents=documents)


def shown(documents: tuple[dict[str, Any], ...], format: str) -> str:
    """Return documents as YAML or JSON text; in JSON, several are one List."""
    if format == "json":
        whole: Any = (
            documents[0]
            if len(documents) == 1
            else {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        )
        return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"
    return yaml.dump_all(
        documents, Dumper=jobfile_writer.Dumper, sort_keys=False, allow_unicode=True, width=100
    )


def _entries(job: MPIJob) -> list[FieldEntry]:
    found = []
    for field, value in own_exports.fields(job).items():
        if field in _NEEDS_US and not (field == "code.path" and job.code.files == {} and not value):
            note, todo = _NEEDS_US[field]
            # The command may name one of them.
            blocks = field == "code.files"
            found.append(FieldEntry(field, FieldOutcome.DROPPED, value[:200], "", note, todo, 0, blocks))
        elif field in _CHANGED:
            found.append(FieldEntry(field, FieldOutcome.CHANGED, value[:200], field, _CHANGED[field]))
        elif field == "secrets" and any(not _of_cluster(secret.source) for secret in job.secrets):
            note, todo = (
                "a manifest does not contain values of your machine",
                _OURS + ", or name a Secret: name/key",
            )
            found.append(FieldEntry(field, FieldOutcome.DROPPED, "", "", note, todo))
        else:
            found.append(FieldEntry(field, FieldOutcome.EXACT, value[:200], field))
    return found


def _of_cluster(source: str) -> bool:
    return not source.startswith(("env:", "file:"))
