"""MPIJob manifests of every version as our job, with a report on every field.

v2beta1 is read by `mpijob`; older versions are first written as v2beta1 by `mpijob_legacy`. What the MPI
Operator does when a field is not said is told as well: its defaults differ from ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpijob.formats.convert import own
from mpijob.formats.convert.kubernetes import flat_fields, launch_command, mpijob_legacy
from mpijob.formats.convert.kubernetes.mpijob_fields import FieldReporter, pod_of
from mpijob.formats.convert.report import Converted, Notes
from mpijob.formats.kubernetes import mpijob
from mpijob.formats.kubernetes.metadata.well_known import container_of, is_ours
from mpijob.formats.kubernetes.trainjob import is_managed
from mpijob.model import MPIJob, Retry

_MOST_RETRIES = 98


def read(document: Mapping[str, Any], *, keep: bool, file: str = "") -> Converted:
    """Return the job of one MPIJob. `keep` is set when an MPIJob is written again: what is foreign stays then."""
    notes = Notes()
    version = str(document.get("apiVersion", ""))
    document = mpijob_legacy.modern(document, notes)
    reading = mpijob.read([document])
    if is_managed(document):
        return own.told(reading, f"MPIJob {version.rpartition('/')[2]}", file, mpijob.family(document))
    job = _adjusted(reading.job, document, notes, keep=keep)
    once = not is_ours(container_of(pod_of(document["spec"], "Launcher")))
    job = launch_command.unwrapped(job, notes, "Launcher.command", once=once)
    beyond = flat_fields.paths(reading.foreign.documents, mpijob.KIND)
    teller = FieldReporter(document, job, notes, beyond, keep=keep)
    for leaf in flat_fields.leaves(document):
        teller.tell(leaf)
    teller.defaults()
    return Converted(
        source=f"MPIJob {version.rpartition('/')[2]}",
        jobs=(job,),
        entries=tuple(notes.entries),
        file=file,
        foreign=reading.foreign,
        family=mpijob.family(document),
    )


def _adjusted(job: MPIJob, document: Mapping[str, Any], notes: Notes, *, keep: bool) -> MPIJob:
    spec = document["spec"]
    policy = spec.get("runPolicy") or {}
    changes: dict[str, Any] = {}
    if spec.get("runLauncherAsWorker"):
        changes["workers"] = job.workers + 1
        note = (
            f"the launcher ran ranks of its own; they are on one worker more here, {job.workers + 1} in all"
        )
        notes.changed("spec.runLauncherAsWorker", "true", "workers", note)
    limit = policy.get("backoffLimit")
    if isinstance(limit, int) and limit > 0 and not keep:
        changes["retry"] = Retry(limit=min(limit, _MOST_RETRIES))
    front = pod_of(spec, "Launcher")
    if not container_of(front).get("resources"):
        changes["launcher"] = MPIJob(name="x").launcher
    scheduling = policy.get("schedulingPolicy") or {}
    if scheduling.get("queue") and not job.queue:
        changes["queue"] = str(scheduling["queue"])
    if scheduling.get("priorityClass") and not job.priority:
        changes["priority"] = str(scheduling["priorityClass"])
    return job.replace(**changes)
