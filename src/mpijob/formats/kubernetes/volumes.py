"""Volumes of a job as pods have them, and back. Which directories they are is said by the job itself.

The container around them is written by `pod_template`. A directory of one machine (`kind: path`) has no
meaning in a pod: hostPath is refused by every restricted policy, so it is refused here with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpijob.formats.kubernetes.metadata.well_known import SSH, Document, Shape, refuse
from mpijob.model import MPIJob, Volume, VolumeKind

PREFIX = "mpijob-volume-"
# As Trainer calls it.
KEY_VOLUME = "mpi-ssh-auth"
# The containers that fetch an S3 volume (`carriers`).
FETCH = "mpijob-fetch-"


def volumes(job: MPIJob, shape: Shape) -> list[Document]:
    """Return the pod's volumes, one for each that the job names."""
    return [{"name": f"{PREFIX}{at}"} | _source(at, one, shape) for at, one in enumerate(job.volumes)]


def mounts(job: MPIJob) -> list[Document]:
    """Return where the containers see the job's volumes."""
    return [
        {"name": f"{PREFIX}{at}", "mountPath": one.mount} | ({"readOnly": True} if one.read_only else {})
        for at, one in enumerate(job.volumes)
    ]


def ssh_key(secret: str) -> Document:
    """Return the volume of the job's key, as Trainer writes it for its own kinds of pods."""
    files = {"ssh-privatekey": "id_rsa", "ssh-publickey": "id_rsa.pub"}
    items = [{"key": key, "path": path} for key, path in files.items()]
    return {"name": KEY_VOLUME, "secret": {"secretName": secret, "items": items}}


def ssh_mount() -> Document:
    """Return where a worker finds the job's key."""
    return {"name": KEY_VOLUME, "mountPath": SSH}


def _source(at: int, volume: Volume, shape: Shape) -> Document:
    match volume.kind:
        case VolumeKind.CLAIM:
            read_only = {"readOnly": True} if volume.read_only else {}
            return {"persistentVolumeClaim": {"claimName": volume.source} | read_only}
        case VolumeKind.NFS:
            return _nfs(volume, shape.nfs_driver)
        case VolumeKind.CONFIG:
            return {"configMap": {"name": volume.source}}
        case VolumeKind.SECRET:
            return {"secret": {"secretName": volume.source}}
        case VolumeKind.SCRATCH | VolumeKind.S3:
            return {"emptyDir": _size(volume)}
        case VolumeKind.SHM:
            return {"emptyDir": {"medium": "Memory"} | _size(volume)}
        case VolumeKind.PATH:
            raise refuse(
                f"volumes[{at}].kind",
                f"{volume.source} is a directory of one machine, which pods on a cluster cannot access",
                "put the data on a volume claim (kind: claim) or an NFS server (kind: nfs)",
            )


def _size(volume: Volume) -> Document:
    return {"sizeLimit": str(volume.size)} if volume.size != "" else {}


def _nfs(volume: Volume, driver: str) -> Document:
    server, _, path = volume.source.partition(":")
    if not driver:
        return {"nfs": {"server": server, "path": path} | ({"readOnly": True} if volume.read_only else {})}
    return {"csi": {"driver": driver, "volumeAttributes": {"server": server, "share": path}}}


def read(pod: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[Volume, ...]:
    """Return the volumes that a container mounts, as far as a job has words for them."""
    sources = {
        volume.get("name"): volume for volume in pod.get("volumes") or () if isinstance(volume, Mapping)
    }
    buckets = _buckets(pod)
    found = (
        _volume(mount, sources.get(mount.get("name")), buckets)
        for mount in container.get("volumeMounts") or ()
    )
    return tuple(one for one in found if one is not None)


def _buckets(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the volumes that a container of ours fetches from a bucket, by name: connection and folder."""
    found = {}
    for container in pod.get("initContainers") or ():
        if not str(container.get("name", "")).startswith(FETCH):
            continue
        match container:
            case {
                "args": ["data", "fetch", str(folder), *_],
                "envFrom": [{"secretRef": {"name": str(connection)}}],
                "volumeMounts": [{"name": str(volume)}],
            }:
                found[volume] = f"{connection}/{folder.removeprefix('env/')}".rstrip("/")
    return found


def _volume(
    mount: Mapping[str, Any], source: Mapping[str, Any] | None, buckets: Mapping[str, str]
) -> Volume | None:
    if source is None or not set(mount) <= _MOUNT or str(source.get("name", "")) in _OURS:
        return None
    said = _said(source)
    if said is None:
        return None
    kind, where, size = said
    if bucket := buckets.get(str(mount.get("name"))):
        kind, where = VolumeKind.S3, bucket
    read_only = bool(mount.get("readOnly", False)) or _is_read_only(source)
    return Volume(mount=str(mount["mountPath"]), kind=kind, source=where, size=size, read_only=read_only)


_OURS = ("mpijob-home", "mpijob-code")
_MOUNT = frozenset({"name", "mountPath", "readOnly"})


def _is_read_only(source: Mapping[str, Any]) -> bool:
    return any(bool((source.get(kind) or {}).get("readOnly")) for kind in ("persistentVolumeClaim", "nfs"))


def _said(source: Mapping[str, Any]) -> tuple[VolumeKind, str, str] | None:
    match source:
        case {"persistentVolumeClaim": {"claimName": str(claim)}}:
            return VolumeKind.CLAIM, claim, ""
        case {"nfs": {"server": str(server), "path": str(path)}}:
            return VolumeKind.NFS, f"{server}:{path}", ""
        case {"csi": {"driver": str(driver), "volumeAttributes": dict(said), **rest}} if (
            "nfs" in driver and not rest and set(said) == {"server", "share"}
        ):
            return VolumeKind.NFS, f"{said['server']}:{said['share']}", ""
        case {"configMap": {"name": str(name), **rest}} if not rest:
            return VolumeKind.CONFIG, name, ""
        case {"secret": {"secretName": str(name), **rest}} if not rest:
            return VolumeKind.SECRET, name, ""
        case {"emptyDir": dict(what)} if what.get("medium", "") in ("", "Memory"):
            kind = VolumeKind.SHM if what.get("medium") == "Memory" else VolumeKind.SCRATCH
            return kind, "", str(what.get("sizeLimit", ""))
    return None
