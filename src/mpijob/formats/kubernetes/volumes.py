"""Volumes of a job ⇄ volumes and mounts of its pods.

`pod_template` writes the containers around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpijob.formats.kubernetes.metadata.well_known import SSH, Document, Shape, refuse
from mpijob.model import MPIJob, Volume, VolumeKind

PREFIX = "mpijob-volume-"
# Trainer's name for it.
KEY_VOLUME = "mpi-ssh-auth"
# Containers that fetch an S3 volume (`s3_sidecars`).
FETCH = "mpijob-fetch-"


def volumes(job: MPIJob, shape: Shape) -> list[Document]:
    return [{"name": f"{PREFIX}{at}"} | _source(at, one, shape) for at, one in enumerate(job.volumes)]


def mounts(job: MPIJob) -> list[Document]:
    return [
        {"name": f"{PREFIX}{at}", "mountPath": one.mount} | ({"readOnly": True} if one.read_only else {})
        for at, one in enumerate(job.volumes)
    ]


def ssh_key(secret: str) -> Document:
    """Return the volume with the job's key, like Trainer's own."""
    files = {"ssh-privatekey": "id_rsa", "ssh-publickey": "id_rsa.pub"}
    items = [{"key": key, "path": path} for key, path in files.items()]
    return {"name": KEY_VOLUME, "secret": {"secretName": secret, "items": items}}


def ssh_mount() -> Document:
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
            # hostPath is refused by the baseline and restricted Pod Security Standards.
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
    """Return the volumes that a container mounts, as far as a job can express them."""
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
    """Return connection and folder of S3 volumes by the volume's name."""
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
    found = _kind_source_size(source)
    if found is None:
        return None
    kind, source_text, size = found
    if bucket := buckets.get(str(mount.get("name"))):
        kind, source_text = VolumeKind.S3, bucket
    read_only = bool(mount.get("readOnly", False)) or _is_read_only(source)
    return Volume(
        mount=str(mount["mountPath"]), kind=kind, source=source_text, size=size, read_only=read_only
    )


_OURS = ("mpijob-home", "mpijob-code")
_MOUNT = frozenset({"name", "mountPath", "readOnly"})


def _is_read_only(source: Mapping[str, Any]) -> bool:
    return any(bool((source.get(kind) or {}).get("readOnly")) for kind in ("persistentVolumeClaim", "nfs"))


def _kind_source_size(source: Mapping[str, Any]) -> tuple[VolumeKind, str, str] | None:
    match source:
        case {"persistentVolumeClaim": {"claimName": str(claim)}}:
            return VolumeKind.CLAIM, claim, ""
        case {"nfs": {"server": str(server), "path": str(path)}}:
            return VolumeKind.NFS, f"{server}:{path}", ""
        case {"csi": {"driver": str(driver), "volumeAttributes": dict(found), **rest}} if (
            "nfs" in driver and not rest and set(found) == {"server", "share"}
        ):
            return VolumeKind.NFS, f"{found['server']}:{found['share']}", ""
        case {"configMap": {"name": str(name), **rest}} if not rest:
            return VolumeKind.CONFIG, name, ""
        case {"secret": {"secretName": str(name), **rest}} if not rest:
            return VolumeKind.SECRET, name, ""
        case {"emptyDir": dict(empty_dir)} if empty_dir.get("medium", "") in ("", "Memory"):
            kind = VolumeKind.SHM if empty_dir.get("medium") == "Memory" else VolumeKind.SCRATCH
            return kind, "", str(empty_dir.get("sizeLimit", ""))
    return None
