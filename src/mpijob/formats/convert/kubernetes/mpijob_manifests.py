"""MPIJob manifests of every version as jobs, with a report on every field.

`mpijob` reads v2beta1; `mpijob_legacy` converts older versions first. Defaults of the MPI Operator are reported too:
they differ from ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpijob.formats.convert import own_exports, unrequested_resources
from mpijob.formats.convert.kubernetes import flat_fields, launch_command, mpijob_legacy, naming
from mpijob.formats.convert.kubernetes.mpijob_fields import FieldReporter, pod_of
from mpijob.formats.convert.report import Converted, Notes
from mpijob.formats.kubernetes import mpijob
from mpijob.formats.kubernetes.metadata.well_known import (
    JOB_LABEL,
    OUR_LABELS,
    ROLE_LABEL,
    container_of,
    is_ours,
)
from mpijob.formats.kubernetes.trainjob import is_managed
from mpijob.model import MPIJob, Retry

_MOST_RETRIES = 98
_OPERATOR = "training.kubeflow.org/"
_ENGINES = (*OUR_LABELS, _OPERATOR)
_OURS = {
    f"{_OPERATOR}job-name": JOB_LABEL,
    f"{_OPERATOR}job-role": ROLE_LABEL,
    "mpi_job_name": JOB_LABEL,
    "mpi_role_type": ROLE_LABEL,
}


def read(document: Mapping[str, Any], *, keep: bool, file: str = "") -> Converted:
    """Return the job of an MPIJob. With `keep` (an MPIJob is written again), foreign fields stay."""
    notes = Notes()
    version = str(document.get("apiVersion", ""))
    document = mpijob_legacy.modern(naming.named(document, notes), notes)
    reading = mpijob.read([document])
    if is_managed(document):
        return own_exports.job_of(
            reading, f"MPIJob {version.rpartition('/')[2]}", file, mpijob.family(document)
        )
    job = _adjusted(reading.job, document, notes, keep=keep)
    affinity = job.placement.affinity
    job = job if keep else _selectable(job, document["spec"])
    relabelled = job.placement.affinity != affinity
    once = not is_ours(container_of(pod_of(document["spec"], "Launcher")))
    job = launch_command.unwrapped(job, notes, "Launcher.command", once=once)
    beyond = flat_fields.paths(reading.foreign.documents, mpijob.KIND)
    teller = FieldReporter(document, job, notes, beyond, keep=keep, relabelled=relabelled)
    for leaf in flat_fields.leaves(document):
        teller.tell(leaf)
    teller.defaults()
    return Converted(
        source=f"MPIJob {version.rpartition('/')[2]}",
        jobs=(job,),
        entries=(*unrequested_resources.first_line(job), *notes.entries),
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
        note = f"the launcher also ran ranks; mpijob adds a worker for them, {job.workers + 1} in all"
        notes.changed("spec.runLauncherAsWorker", "true", "workers", note)
    limit = policy.get("backoffLimit")
    if isinstance(limit, int) and limit > 0 and not keep:
        changes["retry"] = Retry(limit=min(limit, _MOST_RETRIES))
    scheduling = policy.get("schedulingPolicy") or {}
    if scheduling.get("queue") and not job.queue:
        changes["queue"] = str(scheduling["queue"])
    if scheduling.get("priorityClass") and not job.priority:
        changes["priority"] = str(scheduling["priorityClass"])
    return job.replace(**changes)


def _selectable(job: MPIJob, spec: Mapping[str, Any]) -> MPIJob:
    """Return the job with its workers' labels, so that affinity between its pods keeps working.

    Selectors by labels of the operator become selectors by labels that our engines set.
    """
    worker = ((spec.get("mpiReplicaSpecs") or {}).get("Worker") or {}).get("template") or {}
    labels = (worker.get("metadata") or {}).get("labels") or {}
    own_labels = {str(key): str(value) for key, value in labels.items() if not str(key).startswith(_ENGINES)}
    affinity = _relabelled(job.placement.affinity)
    selected = {key: value for key, value in own_labels.items() if key in _keys(affinity)}
    return job.replace(
        labels=own_labels | dict(job.labels) | selected, placement=job.placement.replace(affinity=affinity)
    )


def _relabelled(value: Any) -> Any:
    """Return a part of an affinity with our labels instead of the operator's."""
    if isinstance(value, list):
        return [_relabelled(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _relabelled(item) for key, item in value.items()}
    if isinstance(found.get("matchLabels"), dict):
        found["matchLabels"] = {_OURS.get(key, key): item for key, item in found["matchLabels"].items()}
    return found | ({"key": _OURS[found["key"]]} if found.get("key") in _OURS else {})


def _keys(value: Any) -> frozenset[str]:
    if isinstance(value, list):
        return frozenset().union(*(_keys(item) for item in value))
    if not isinstance(value, Mapping):
        return frozenset()
    named = {str(value["key"])} if "key" in value else set()
    return frozenset(named | {*(value.get("matchLabels") or {})}).union(
        *(_keys(item) for item in value.values())
    )
