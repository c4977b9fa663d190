"""The differences of a job on another engine, field by field: the report of `mpijob move`.

One job file runs on every engine, but some fields have another meaning there, or none. Only fields that the job sets
are reported; MPI, nodes and limits are in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mpijob.formats.convert import own_exports
from mpijob.formats.convert.report import FieldEntry, FieldOutcome, to_do_first
from mpijob.model import MPIJob, VolumeKind

_EXACT, _CHANGED, _DROPPED = FieldOutcome.EXACT, FieldOutcome.CHANGED, FieldOutcome.DROPPED


class _Meaning(NamedTuple):
    """The outcome of a field on an engine, the reason, and what to do."""

    fate: FieldOutcome
    note: str
    todo: str = "nothing"


_OF_A_CLUSTER = _Meaning(_DROPPED, "applies only to Kubernetes")
_ONE_MACHINE = _Meaning(_DROPPED, "there is only one machine")
_MEANINGS: Mapping[str, Mapping[str, _Meaning]] = {
    "slurm": {
        "image": _Meaning(
            _DROPPED, "programs installed on the nodes are used", "load the site's MPI modules first"
        ),
        "namespace": _Meaning(_CHANGED, "Slurm has no namespaces; mpijob uses it to separate your jobs"),
        "queue": _Meaning(
            _CHANGED, "this is the partition", "use a partition of the site; list them with sinfo -s"
        ),
        "priority": _Meaning(_CHANGED, "this is the QOS of that name, if your account has one"),
        "cost": _Meaning(_CHANGED, "cost.account is the Slurm account", "use one of your accounts"),
        "placement.node_selector": _Meaning(
            _CHANGED, "the values are node features (--constraint)", "see sinfo -o %f"
        ),
        "placement.exclude_nodes": _Meaning(_CHANGED, "nodes have other names", "use node names of the site"),
        "placement": _Meaning(_DROPPED, "Slurm places jobs by partition and node features"),
        "network": _Meaning(_DROPPED, "jobs share the site's network"),
        "elastic": _Meaning(_DROPPED, "the nodes of a job cannot change"),
        "launcher": _Meaning(_DROPPED, "the batch script runs on the first node and shares its resources"),
        "resources.cpu": _Meaning(_CHANGED, "Slurm counts whole CPUs per rank"),
        "resources.gpu_kind": _Meaning(
            _DROPPED, "GPU types are specific to the site", "use a --gres type of the site"
        ),
        "deadline_seconds": _Meaning(
            _CHANGED, "counted from the start of the job; it cannot exceed the limit of the partition"
        ),
        "gang_timeout_seconds": _Meaning(_DROPPED, "a job always starts with all its nodes"),
        "retry.on": _Meaning(
            _DROPPED, "inside an allocation, retries do not depend on the cause", "remove retry.on"
        ),
        "concurrency": _Meaning(
            _DROPPED, "the partition and the QOS limit jobs", "remove it, or use a QOS with MaxJobsPerUser"
        ),
        "ttl_seconds": _Meaning(_DROPPED, "no service deletes jobs on Slurm", "mpijob delete"),
        "requeue_on_lost_worker": _Meaning(_CHANGED, "Slurm requeues the job (--requeue), two minutes later"),
        "model": _Meaning(
            _DROPPED, "the model is not registered", "run mpijob register afterwards, on another engine"
        ),
        "retention": _Meaning(_CHANGED, "a job's files stay until it is deleted"),
        "pull_secrets": _OF_A_CLUSTER,
        "pull_policy": _OF_A_CLUSTER,
    },
    "kubernetes": {
        "concurrency": _Meaning(
            _DROPPED, "not supported on a cluster; the quota of the queue limits jobs", "remove it"
        ),
        "queue": _Meaning(_CHANGED, "this is a LocalQueue of Kueue", "use a queue of the namespace"),
        "priority": _Meaning(_CHANGED, "this is a priority class of the cluster"),
        "cost": _Meaning(_CHANGED, "these become labels for accounting"),
        "placement.node_selector": _Meaning(
            _CHANGED, "these are labels of the cluster's nodes", "see kubectl get nodes"
        ),
        "placement.exclude_nodes": _Meaning(
            _CHANGED, "nodes have other names", "use node names of the cluster"
        ),
        "deadline_seconds": _Meaning(
            _CHANGED, "counted from the creation of the job, so it includes the wait"
        ),
        "code.path": _Meaning(
            _CHANGED,
            "only text files are uploaded, as part of the job",
            "put the rest into the image or on a volume",
        ),
    },
    "local": {
        "image": _Meaning(_DROPPED, "the program installed on this machine is used"),
        "namespace": _Meaning(_EXACT, ""),
        "queue": _Meaning(_DROPPED, "this machine has one queue"),
        "cost": _Meaning(_CHANGED, "these become labels for accounting"),
        "placement": _ONE_MACHINE,
        "network": _Meaning(_DROPPED, "ranks on one machine share its network"),
        "elastic": _Meaning(_DROPPED, "the number of workers does not change"),
        "gang_timeout_seconds": _ONE_MACHINE,
        "pull_secrets": _OF_A_CLUSTER,
        "pull_policy": _OF_A_CLUSTER,
    },
}


def differences(job: MPIJob, source: str, target: str) -> tuple[FieldEntry, ...]:
    """Return the outcome of each field that the job sets, from one kind of engine to another."""
    known = _MEANINGS.get(target, {})
    entries = []
    for field, value in own_exports.fields(job).items():
        meaning = known.get(field) or known.get(field.partition(".")[0])
        if source == target or meaning is None:
            meaning = _Meaning(_EXACT, "")
        entries.append(FieldEntry(field, meaning.fate, value[:200], field, meaning.note, meaning.todo))
    found = {entry.field: entry for entry in entries}
    found |= {entry.field: entry for entry in _value_differences(job, target)}
    return to_do_first(found.values())


def _value_differences(job: MPIJob, target: str) -> list[FieldEntry]:
    """Yield differences that depend on a field's value: volumes, secrets, a missing image."""
    entries: list[FieldEntry] = []
    foreign = [volume.mount for volume in job.volumes if volume.kind is not VolumeKind.PATH]
    if foreign and target == "slurm":
        note, todo = (
            "only directories of the site are available on its nodes",
            "write to a directory of the shared file system",
        )
        entries.append(FieldEntry("volumes", _DROPPED, ", ".join(foreign), "", note, todo, 0, True))
    elif job.volumes and target != "slurm":
        entries.append(
            FieldEntry(
                "volumes",
                _CHANGED,
                "",
                "volumes",
                "these directories belong to the other system",
                "check each one",
            )
        )
    here = [secret.env for secret in job.secrets if secret.source.startswith(("env:", "file:"))]
    there = [secret.env for secret in job.secrets if not secret.source.startswith(("env:", "file:"))]
    if there and target != "kubernetes":
        note, todo = (
            "these Secrets exist only on the cluster",
            "use a variable or a file: env:NAME, file:PATH",
        )
        entries.append(FieldEntry("secrets", _DROPPED, ", ".join(there), "", note, todo, 0, True))
    elif here and target == "kubernetes":
        note, todo = "these values are on your machine", "create a Secret on the cluster, and use NAME/KEY"
        entries.append(FieldEntry("secrets", _DROPPED, ", ".join(here), "", note, todo, 0, True))
    if target == "kubernetes" and not job.image:
        note, todo = (
            "pods need an image, and the job sets none",
            "set one with --image; otherwise the default of the cluster is used",
        )
        entries.append(FieldEntry("image", _CHANGED, "", "image", note, todo))
    return entries
