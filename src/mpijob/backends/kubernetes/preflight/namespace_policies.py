"""What in a namespace stands in a job's way, or changes its pods: policies, security level, mesh, claims, classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mpijob.backends.kubernetes.client.concurrent import ReadResult
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import MPIJob, VolumeKind
from mpijob.model.platform.cluster import Claim
from mpijob.model.spec.enums import FABRIC_DEVICES, PRIORITIES

NFS_DRIVER = "nfs.csi.k8s.io"
_LEVEL_LABEL = "pod-security.kubernetes.io/enforce"


def labels(namespace: Document | None) -> Mapping[str, str] | None:
    """Return a namespace's labels; None where it could not be read."""
    return None if namespace is None else (namespace["metadata"].get("labels") or {})


def security_level(namespace: Document | None) -> str:
    """Return the Pod Security level that the namespace enforces, "" for none (or where nobody knows)."""
    return (labels(namespace) or {}).get(_LEVEL_LABEL, "")


def in_mesh(namespace: Document | None) -> bool:
    """Return whether Istio would put itself beside pods of this namespace."""
    said = labels(namespace) or {}
    return (
        said.get("istio-injection") == "enabled"
        or bool(said.get("istio.io/rev"))
        or said.get("istio.io/dataplane-mode") == "ambient"
    )


def claim_names(job: MPIJob) -> tuple[str, ...]:
    """Return the volume claims that a job names, each once."""
    return tuple(dict.fromkeys(one.source for one in job.volumes if one.kind is VolumeKind.CLAIM))


def claims(answers: Mapping[str, ReadResult]) -> tuple[Claim, ...]:
    """Return the claims that were asked for; those that could not be read are left out."""
    return tuple(_claim(name, answer.value) for name, answer in answers.items() if not answer.refused)


def _claim(name: str, document: Document | None) -> Claim:
    if document is None:
        return Claim(name=name, found=False)
    modes = (document.get("status") or {}).get("accessModes") or (document.get("spec") or {}).get(
        "accessModes"
    )
    return Claim(name=name, modes=tuple(modes or ()))


def wants_priority(job: MPIJob) -> bool:
    """Return whether the job's priority is one that a cluster must have a class for."""
    return job.priority not in (0, "normal", "")


def priority_classes(names: Iterable[str]) -> dict[str, str]:
    """Return which class each of our words has on this cluster: `high` may be called `high-priority` there."""
    there = set(names)
    found = {}
    for word in PRIORITIES:
        forms = (word, f"{word}-priority", f"priority-{word}", f"mpijob-{word}")
        if name := next((form for form in forms if form in there), ""):
            found[word] = name
    return found


def wants_nfs(job: MPIJob) -> bool:
    """Return whether the job mounts an NFS server's directory."""
    return any(one.kind is VolumeKind.NFS for one in job.volumes)


def wants_rdma(job: MPIJob) -> bool:
    """Return whether the workers ask for an RDMA device."""
    return any(name.startswith(FABRIC_DEVICES) for part in job.parts for name in part.job.resources.others)


def names(documents: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of objects, in order."""
    return tuple(sorted(one["metadata"]["name"] for one in documents))
