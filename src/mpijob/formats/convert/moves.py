"""What is different for a job on another engine, field by field: the report of `mpijob move`.

One spec runs on every engine, and some of its words mean something else there, or nothing. Only fields that the job
sets are told; what the place itself makes of it (MPI, nodes, limits) is in its plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mpijob.formats.convert import own_exports
from mpijob.formats.convert.report import FieldEntry, FieldOutcome, to_do_first
from mpijob.model import MPIJob, VolumeKind

_EXACT, _CHANGED, _DROPPED = FieldOutcome.EXACT, FieldOutcome.CHANGED, FieldOutcome.DROPPED


class _Meaning(NamedTuple):
    """What becomes of a field on an engine, why, and what to do."""

    fate: FieldOutcome
    note: str
    todo: str = "nothing"


_OF_A_CLUSTER = _Meaning(_DROPPED, "it belongs to a Kubernetes cluster")
_ONE_MACHINE = _Meaning(_DROPPED, "there is one machine")
_MEANINGS: Mapping[str, Mapping[str, _Meaning]] = {
    "slurm": {
        "image": _Meaning(
            _DROPPED, "the nodes run programs as they are installed there", "load the site's modules before"
        ),
        "namespace": _Meaning(_CHANGED, "Slurm has none; mpijob uses it to separate your jobs"),
        "queue": _Meaning(_CHANGED, "it is the partition", "name one of the site: sinfo -s"),
        "priority": _Meaning(_CHANGED, "it stands for the QOS of that name, where your account has one"),
        "cost": _Meaning(_CHANGED, "cost.account is the account that pays", "name one of yours"),
        "placement.node_selector": _Meaning(
            _CHANGED, "its values are features of nodes (--constraint)", "see sinfo -o %f"
        ),
        "placement.exclude_nodes": _Meaning(_CHANGED, "nodes are called otherwise", "name the site's nodes"),
        "placement": _Meaning(_DROPPED, "Slurm places by partition and features"),
        "network": _Meaning(_DROPPED, "jobs share the site's network"),
        "elastic": _Meaning(_DROPPED, "a job keeps the nodes that it was given"),
        "launcher": _Meaning(_DROPPED, "the batch script runs on the first node, within what that has"),
        "resources.cpu": _Meaning(_CHANGED, "whole CPUs are counted, by rank"),
        "resources.gpu_kind": _Meaning(
            _DROPPED, "Slurm knows GPUs by the site's own types", "--gres types are the site's"
        ),
        "deadline_seconds": _Meaning(
            _CHANGED, "it counts from the start, and may not exceed the partition's limit"
        ),
        "gang_timeout_seconds": _Meaning(_DROPPED, "a job starts with all its nodes, or waits"),
        "retry.on": _Meaning(
            _DROPPED, "the allocation retries without knowing the cause", "leave retry.on out"
        ),
        "concurrency": _Meaning(
            _DROPPED, "the partition and the QOS limit jobs", "leave it out, or use a QOS with MaxJobsPerUser"
        ),
        "ttl_seconds": _Meaning(_DROPPED, "no service deletes jobs on Slurm", "mpijob delete"),
        "requeue_on_lost_worker": _Meaning(_CHANGED, "Slurm requeues the job (--requeue), two minutes later"),
        "model": _Meaning(
            _DROPPED, "the model is not registered", "mpijob register afterwards, on another engine"
        ),
        "retention": _Meaning(_CHANGED, "a job's files stay until it is deleted"),
        "pull_secrets": _OF_A_CLUSTER,
        "pull_policy": _OF_A_CLUSTER,
    },
    "kubernetes": {
        "concurrency": _Meaning(
            _DROPPED, "a cluster refuses it: the queue's quota limits jobs", "leave it out"
        ),
        "queue": _Meaning(_CHANGED, "it is a LocalQueue of Kueue", "name one of the namespace"),
        "priority": _Meaning(_CHANGED, "it is a class of the cluster"),
        "cost": _Meaning(_CHANGED, "these are labels by which use is counted"),
        "placement.node_selector": _Meaning(
            _CHANGED, "these are labels of the cluster's nodes", "see kubectl get nodes"
        ),
        "placement.exclude_nodes": _Meaning(
            _CHANGED, "nodes are called otherwise", "name the cluster's nodes"
        ),
        "deadline_seconds": _Meaning(_CHANGED, "it counts from when the job is created, the wait included"),
        "code.path": _Meaning(
            _CHANGED,
            "only text files are uploaded, inside the job",
            "put the rest into the image or on a volume",
        ),
    },
    "local": {
        "image": _Meaning(_DROPPED, "the command runs as it is installed on this machine"),
        "namespace": _Meaning(_EXACT, ""),
        "queue": _Meaning(_DROPPED, "this machine has one queue"),
        "cost": _Meaning(_CHANGED, "these are labels by which use is counted"),
        "placement": _ONE_MACHINE,
        "network": _Meaning(_DROPPED, "ranks on one machine share its network"),
        "elastic": _Meaning(_DROPPED, "all workers run from the beginning to the end"),
        "gang_timeout_seconds": _ONE_MACHINE,
        "pull_secrets": _OF_A_CLUSTER,
        "pull_policy": _OF_A_CLUSTER,
    },
}


def differences(job: MPIJob, source: str, target: str) -> tuple[FieldEntry, ...]:
    """Return what becomes of each field that a job sets when it goes from one kind of engine to another."""
    known = _MEANINGS.get(target, {})
    entries = []
    for field, value in own_exports.fields(job).items():
        meaning = known.get(field) or known.get(field.partition(".")[0])
        if source == target or meaning is None:
            meaning = _Meaning(_EXACT, "")
        entries.append(FieldEntry(field, meaning.fate, value[:200], field, meaning.note, meaning.todo))
    found = {entry.field: entry for entry in entries}
    found |= {entry.field: entry for entry in _of_values(job, target)}
    return to_do_first(found.values())


def _of_values(job: MPIJob, target: str) -> list[FieldEntry]:
    """Return what depends on a field's value: volumes, secrets, a missing image."""
    entries: list[FieldEntry] = []
    foreign = [one.mount for one in job.volumes if one.kind is not VolumeKind.PATH]
    if foreign and target == "slurm":
        note, todo = (
            "nodes have the site's directories alone",
            "write to a directory of the shared file system",
        )
        entries.append(FieldEntry("volumes", _DROPPED, ", ".join(foreign), "", note, todo, 0, True))
    elif job.volumes and target != "slurm":
        entries.append(
            FieldEntry(
                "volumes", _CHANGED, "", "volumes", "directories are those of the other place", "look at each"
            )
        )
    here = [one.env for one in job.secrets if one.source.startswith(("env:", "file:"))]
    there = [one.env for one in job.secrets if not one.source.startswith(("env:", "file:"))]
    if there and target != "kubernetes":
        note, todo = (
            "these are Secrets of a cluster",
            "name a variable or a file of yours: env:NAME, file:PATH",
        )
        entries.append(FieldEntry("secrets", _DROPPED, ", ".join(there), "", note, todo, 0, True))
    elif here and target == "kubernetes":
        note, todo = "these are on your machine", "make a Secret of the cluster, and name it: NAME/KEY"
        entries.append(FieldEntry("secrets", _DROPPED, ", ".join(here), "", note, todo, 0, True))
    if target == "kubernetes" and not job.image:
        note, todo = (
            "pods run an image, and the job names none",
            "name one with --image, or the cluster's default is used",
        )
        entries.append(FieldEntry("image", _CHANGED, "", "image", note, todo))
    return entries
