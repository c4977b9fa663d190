"""What a cluster's job left, as far as it lies where it can be read from here: in the buckets of its S3 volumes.

A file is called by its path in the job without the first slash: `out/model/weights`. The bucket is reached from this
machine with the Secret of the data connection, which the user must be able to read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mpijob.backends import buckets
from mpijob.backends.buckets import Bucket
from mpijob.backends.kubernetes import secretvalues
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.looking import Eye
from mpijob.errors import BackendError, NotAllowed, NotFound, Unsupported
from mpijob.model import Artifact, JobRef, MPIJob, Volume, VolumeKind


def kept(eye: Eye, ref: JobRef) -> MPIJob:
    """Return a job that may have left files where they can be had; refuse any other."""
    job = eye.wanted(ref)
    if not volumes(job):
        raise Unsupported(
            f"the files of {eye.find(ref).ref} go with its pods: a cluster keeps what is on a volume",
            hint="give the job a volume of kind s3 and write results there; those of a claim are read by another job",
        )
    return job


def volumes(job: MPIJob) -> list[Volume]:
    """Return the volumes that the job may have written to and whose files can be had."""
    return [one for one in job.volumes if one.kind is VolumeKind.S3 and not one.read_only]


def left(api: Api, job: MPIJob) -> Iterator[Artifact]:
    """Yield the files of those volumes."""
    for volume in volumes(job):
        for name, size in _bucket(api, job, volume).names():
            if name and not name.endswith("/"):
                yield Artifact(f"{_stem(volume)}{name}", size, 0.0)


def fetch(api: Api, job: MPIJob, path: str, target: Path) -> None:
    """Copy one of those files to this machine."""
    volume = next((one for one in volumes(job) if path.startswith(_stem(one))), None)
    if volume is None:
        raise NotFound(f"the job left no file {path!r}", hint="mpijob artifacts list shows what there is")
    name = path.removeprefix(_stem(volume))
    bucket = _bucket(api, job, volume)
    if name not in (known for known, _ in bucket.names()):
        raise NotFound(f"the job left no file {path!r}", hint="mpijob artifacts list shows what there is")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BackendError(f"cannot write {target}: {error.strerror}") from error
    try:
        bucket.download(name, handle)
    finally:
        os.close(handle)


def _stem(volume: Volume) -> str:
    return volume.mount.strip("/") + "/"


def _bucket(api: Api, job: MPIJob, volume: Volume) -> Bucket:
    name, folder = buckets.parted(volume.source)
    return Bucket(connection(api, job.namespace, name), folder)


def connection(api: Api, namespace: str, name: str) -> buckets.Connection:
    """Return a data connection by the name of its Secret."""
    data = secretvalues.values(api, namespace, name)
    if not data:
        raise NotAllowed(
            f"data connection '{name}' is a Secret of namespace '{namespace}', not there or not for you to read",
            hint="ask for 'get secrets' there, or let somebody do it who has it",
        )
    return buckets.from_variables(data)
