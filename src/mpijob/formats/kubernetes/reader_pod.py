"""The pod through which files of a job's volume claims are read: short-lived, restricted and read only.

It mounts each claim below `ROOT` at the claim's path in the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpijob.formats.kubernetes import placement
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.model import MPIJob, Role, Volume

ROOT = "/mpijob/volumes"
CONTAINER = "reader"
_LONGEST_STEM = 40
_REQUESTS = {"cpu": "50m", "memory": "64Mi"}
_LIMITS = {"cpu": "1", "memory": "256Mi"}
_SLEEP = 'exec sleep "$1"'
_KEPT_SECURITY = ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "seLinuxOptions")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def document(
    job: MPIJob,
    claims: Sequence[Volume],
    *,
    suffix: str,
    seconds: int,
    owner: Document,
    security: Mapping[str, Any],
    user: int | None,
    node: str = "",
) -> Document:
    """Return the pod, which ends at the latest `seconds` after its start.

    `owner` is the reference to the job's object, `security` the security context of the job's pods, `user` the user
    ID if that has none. `node` is the machine of a claim that only one node may mount.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        # Without the uid label: the job's NetworkPolicy would let it reach the ranks.
        "metadata": {
            "name": f"{job.name[:_LONGEST_STEM].rstrip('-')}-mpijob-reader-{suffix}",
            "namespace": job.namespace,
            "labels": {
                well_known.MANAGED_LABEL: well_known.MANAGED_BY,
                well_known.READER_LABEL: job.name,
                "sidecar.istio.io/inject": "false",
                "istio.io/dataplane-mode": "none",
            },
            "annotations": {"sidecar.istio.io/inject": "false"},
            "ownerReferences": [owner],
        },
        "spec": _spec(job, claims, seconds, _security(security, user)) | _place(job, node),
    }


def _spec(job: MPIJob, claims: Sequence[Volume], seconds: int, security: Document) -> Document:
    spec: Document = {
        "restartPolicy": "Never",
        # If the process that created it is killed, it ends by itself.
        "activeDeadlineSeconds": seconds,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security,
        "containers": [_container(job, claims, seconds)],
        "volumes": [
            {"name": f"claim-{at}", "persistentVolumeClaim": {"claimName": claim}}
            for at, claim in enumerate(_sources(claims))
        ],
    }
    if job.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in job.pull_secrets]
    return spec


def _container(job: MPIJob, claims: Sequence[Volume], seconds: int) -> Document:
    sources = _sources(claims)
    container: Document = {
        "name": CONTAINER,
        "image": job.image,
        "command": ["/bin/sh", "-c", _SLEEP, "mpijob-reader", str(seconds)],
        "env": [{"name": "LC_ALL", "value": "C"}],
        "resources": {"requests": _REQUESTS, "limits": _LIMITS},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": f"claim-{sources.index(claim.source)}", "mountPath": place(claim), "readOnly": True}
            for claim in claims
        ],
    }
    if job.pull_policy:
        container["imagePullPolicy"] = job.pull_policy
    return container


def _sources(claims: Sequence[Volume]) -> list[str]:
    return [*dict.fromkeys(claim.source for claim in claims)]


def place(volume: Volume) -> str:
    """Return the path in the reader of a claim that the job has at its mount."""
    return f"{ROOT}/{volume.mount.strip('/')}"


def _security(job_security: Mapping[str, Any], user: int | None) -> Document:
    """Return the job's own user and groups, with which it can read the job's files."""
    kept = {key: job_security[key] for key in _KEPT_SECURITY if key in job_security}
    # Restricted pods may not run as root.
    if not kept.get("runAsUser"):
        kept.pop("runAsUser", None)
        kept |= {} if user is None else {"runAsUser": user}
    return {
        **kept,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "fsGroupChangePolicy": "OnRootMismatch",
    }


def _place(job: MPIJob, node: str) -> Document:
    """Return the job's own placement, or the node that has its claim."""
    found = placement.pod_fields(
        job.replace(placement=job.placement.replace(affinity={})), Shape(), Role.LAUNCHER
    )
    if not node:
        return found
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return found | {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [here]}}}}
