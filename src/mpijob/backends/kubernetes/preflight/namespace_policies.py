"""What in a namespace prevents a job, or changes its pods: policies, security level, mesh, claims, classes."""

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
    """Return a namespace's labels; None if it could not be read."""
    return None if namespace is None else (namespace["metadata"].get("labels") or {})


def security_level(namespace: Document | None) -> str:
    """Return the enforced Pod Security level; "" for none, or if unknown."""
    return (labels(namespace) or {}).get(_LEVEL_LABEL, "")


def in_mesh(namespace: Document | None) -> bool:
    """Return whether Istio injects sidecars into pods of this namespace."""
    found = labels(namespace) or {}
    return (
        found.get("istio-injection") == "enabled"
        or bool(found.get("istio.io/rev"))
        or found.get("istio.io/dataplane-mode") == "ambient"
    )


def claim_names(job: MPIJob) -> tuple[str, ...]:
    """Return the volume claims of a job, each once."""
    return tuple(dict.fromkeys(volume.source for volume in job.volumes if volume.kind is VolumeKind.CLAIM))


def claims(results: Mapping[str, ReadResult]) -> tuple[Claim, ...]:
    """Return the claims that could be read."""
    return tuple(_claim(name, result.value) for name, result in results.items() if not result.refused)


def _claim(name: str, document: Document | None) -> Claim:
    if document is None:
        return Claim(name=name, found=False)
    modes = (document.get("status") or {}).get("accessModes") or (document.get("spec") or {}).get(
        "accessModes"
    )
    return Claim(name=name, modes=tuple(modes or ()))


def wants_priority(job: MPIJob) -> bool:
    """Return whether the job's priority needs a class in the cluster."""
    return job.priority not in (0, "normal", "")


def priority_classes(names: Iterable[str]) -> dict[str, str]:
    """Return the cluster's class for each of our priority names: `high` may be `high-priority` there."""
    there = set(names)
    found = {}
    for word in PRIORITIES:
        forms = (word, f"{word}-priority", f"priority-{word}", f"mpijob-{word}")
        if name := next((form for form in forms if form in there), ""):
            found[word] = name
    return found


def wants_nfs(job: MPIJob) -> bool:
    return any(volume.kind is VolumeKind.NFS for volume in job.volumes)


def wants_rdma(job: MPIJob) -> bool:
    """Return whether the workers request an RDMA device."""
    return any(name.startswith(FABRIC_DEVICES) for part in job.parts for name in part.job.resources.others)


def names(documents: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(sorted(document["metadata"]["name"] for document in documents))
