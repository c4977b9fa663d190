"""S3 volumes in pods: a container that fetches the folder before the job, one that stores what changes while it runs.

Both run our services' image with the variables of the data connection, a Secret of the namespace; neither the user's
container nor a document ever holds its keys. The storing one stands beside each worker and outlives it: when the
job ends, the pod is told to go, and it goes when what is left has been stored.
"""

from __future__ import annotations

from mpijob.formats.kubernetes import volumes
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.model import MPIJob, Role, Volume, VolumeKind

FETCH, KEEP = volumes.FETCH, "mpijob-keep-"
# How long a pod may take to store what is left.
STORING_SECONDS = 600
_PLACE = "/mpijob/data"
# the home is the volume itself: a profile that a job writes there is nobody's (it could name a program to run)
_NO_PROFILES = [
    {"name": name, "value": "/dev/null"} for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
]


def is_ours(name: str) -> bool:
    """Whether a container is one of these."""
    return name.startswith((FETCH, KEEP))


def stores(job: MPIJob) -> bool:
    """Whether something is stored when the job ends."""
    return any(volume.kind is VolumeKind.S3 and not volume.read_only for volume in job.volumes)


def fetching(job: MPIJob, shape: Shape, security: Document) -> list[Document]:
    """Return the containers that fetch, one for each S3 volume."""
    return [
        _container(f"{FETCH}{at}", "fetch", at, one, shape, security)
        for at, one in enumerate(job.volumes)
        if one.kind is VolumeKind.S3
    ]


def keeping(job: MPIJob, shape: Shape, role: Role, security: Document) -> list[Document]:
    """Return the containers that store beside a worker, one for each S3 volume that may be written to."""
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
