"""What a cluster's job left, as far as it lies where it can be read from here: in the buckets of its S3 volumes.

A file is called by its path in the job without the first slash: `out/model/weights`. The bucket is reached from this
machine with the Secret of the data connection, which the user must be able to read. Whoever can write such a Secret
chooses where this process connects: a server that acts for others passes a restricted policy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

from mpijob.backends import s3_volumes
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.logs import secret_values
from mpijob.backends.kubernetes.status.job_reader import JobReader
from mpijob.backends.s3_volumes import Bucket
from mpijob.errors import BackendError, NotAllowed, NotFound, Unsupported
from mpijob.model import Artifact, JobRef, MPIJob, Volume, VolumeKind
from mpijob.outbound.guard import Guard
from mpijob.outbound.policy import Policy, TooLarge

# a pipe that nobody reads any more is an error, and does not wait for a reader
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def kept(eye: JobReader, ref: JobRef) -> MPIJob:
    """Return a job that may have left files where they can be had; refuse any other."""
    job = eye.wanted(ref)
    if not volumes(job):
        raise Unsupported(
            f"the files of {eye.find(ref).ref} are deleted with its pods: use a volume to keep files",
            hint="give the job a volume of kind s3 and write results there; read files of a claim with another job",
        )
    return job


def volumes(job: MPIJob) -> list[Volume]:
    """Return the volumes that the job may have written to and whose files can be had."""
    return [one for one in job.volumes if one.kind is VolumeKind.S3 and not one.read_only]


def left(api: Api, job: MPIJob, policy: Policy) -> Iterator[Artifact]:
    """Yield the files of those volumes."""
    count, most = 0, policy.listed_objects
    with Guard(policy) as guard:
        for volume in volumes(job):
            with closing(_bucket(api, job, volume, guard)) as bucket:
                for name, size in bucket.names():
                    count += 1
                    if 0 < most < count:
                        raise TooLarge(
                            f"the job has more than {most} files, the limit of this server",
                            hint="list them with: mpijob artifacts list",
                        )
                    if name and not name.endswith("/"):
                        yield Artifact(f"{_stem(volume)}{name}", size, 0.0)


def fetch(api: Api, job: MPIJob, path: str, target: Path, policy: Policy) -> None:
    """Copy one of those files to this machine."""
    missing = NotFound(f"the job left no file {path!r}", hint="list the files with: mpijob artifacts list")
    volume = next((one for one in volumes(job) if path.startswith(_stem(one))), None)
    name = path.removeprefix(_stem(volume)) if volume is not None else ""
    if volume is None or not name or name.endswith("/") or ".." in name.split("/"):
        raise missing
    with Guard(policy) as guard, closing(_bucket(api, job, volume, guard)) as bucket:
        pieces = bucket.read(name)
        try:
            first = next(pieces, b"")  # before anything is made here
        except NotFound:
            raise missing from None
        _write(target, chain((first,), pieces))


def _write(target: Path, pieces: Iterator[bytes]) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(target, _NEW_FILE, 0o644)
        try:
            os.set_blocking(handle, True)
            s3_volumes.write(handle, pieces)
        finally:
            os.close(handle)
    except OSError as error:
        raise BackendError(f"cannot write {target}: {error.strerror}") from error


def _stem(volume: Volume) -> str:
    return volume.mount.strip("/") + "/"


def _bucket(api: Api, job: MPIJob, volume: Volume, guard: Guard) -> Bucket:
    name, folder = s3_volumes.parted(volume.source)
    return Bucket(connection(api, job.namespace, name), folder, guard)


def connection(api: Api, namespace: str, name: str) -> s3_volumes.Connection:
    """Return a data connection by the name of its Secret."""
    data = secret_values.values(api, namespace, name)
    if not data:
        raise NotAllowed(
            f"data connection '{name}' is a Secret of namespace '{namespace}' that does not exist or "
            f"that you may not read",
            hint="ask for the RBAC permission 'get secrets', or ask a user who has it",
        )
    return s3_volumes.from_variables(data)
