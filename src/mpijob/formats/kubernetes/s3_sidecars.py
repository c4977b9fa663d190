"""Containers for S3 volumes: one fetches the folder before the job, one stores changes while the job runs.

Both run our service image with the variables of the data connection, a Secret of the namespace. The user's container
and the job's documents never contain its keys.
"""

from __future__ import annotations

from mpijob.formats.kubernetes import volumes
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.model import MPIJob, Role, Volume, VolumeKind

FETCH, KEEP = volumes.FETCH, "mpijob-keep-"
# Seconds of termination grace in which the rest is stored. The container is deleted with its worker's pod, when the
# job has ended.
STORING_SECONDS = 600
_PLACE = "/mpijob/data"
# HOME is the volume, in which the job writes: a profile in it could name a program to run (credential_process).
_NO_PROFILES = [
    {"name": name, "value": "/dev/null"} for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
]


def is_ours(name: str) -> bool:
    return name.startswith((FETCH, KEEP))


def stores(job: MPIJob) -> bool:
    return any(volume.kind is VolumeKind.S3 and not volume.read_only for volume in job.volumes)


def fetching(job: MPIJob, shape: Shape, security: Document) -> list[Document]:
    """Return the init containers that fetch, one for each S3 volume."""
    return [
        _container(f"{FETCH}{at}", "fetch", at, one, shape, security)
        for at, one in enumerate(job.volumes)
        if one.kind is VolumeKind.S3
    ]


def keeping(job: MPIJob, shape: Shape, role: Role, security: Document) -> list[Document]:
    """Return the containers beside a worker that store, one for each writable S3 volume."""
    if role is not Role.WORKER:
        return []
    return [
        _container(f"{KEEP}{at}", "keep", at, one, shape, security)
        for at, one in enumerate(job.volumes)
        if one.kind is VolumeKind.S3 and not one.read_only
    ]


def _container(name: str, verb: str, at: int, volume: Volume, shape: Shape, security: Document) -> Document:
    connection, _, folder = volume.source.partition("/")
    amounts = {"cpu": "20m", "memory": "192Mi"}
    return {
        "name": name,
        "image": shape.service_image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["data", verb, f"env/{folder}", _PLACE],
        "env": [{"name": "HOME", "value": _PLACE}, *_NO_PROFILES],
        "envFrom": [{"secretRef": {"name": connection}}],
        "resources": {"requests": amounts, "limits": {"memory": amounts["memory"]}},
        "securityContext": security,
        "volumeMounts": [{"name": f"{volumes.PREFIX}{at}", "mountPath": _PLACE}],
    }
