"""What a cluster's job left, as far as it lies where it can be read from here: in buckets, and on volume claims.

A file is called by its path in the job without the first slash: `out/model/weights`. A bucket is reached from this
machine with the Secret of the data connection, which the user must be able to read. Whoever can write such a Secret
chooses where this process connects: a server that acts for others passes a restricted policy. A claim is read through
a short-lived pod (`claim_reader`), so the user needs the rights to create it and to run commands in it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path

from mpijob.backends import s3_volumes
from mpijob.backends.kubernetes.actions import claim_files, claim_reader
from mpijob.backends.kubernetes.actions.claim_reader import JobFiles, Reader
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import translated
from mpijob.backends.kubernetes.logs import secret_values
from mpijob.backends.kubernetes.status.job_reader import JobReader
from mpijob.backends.s3_volumes import Bucket
from mpijob.errors import BackendError, NotAllowed, NotFound, Unsupported
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import Artifact, JobRef, MPIJob, Volume, VolumeKind
from mpijob.outbound.guard import Guard
from mpijob.outbound.policy import Policy, TooLarge

# a pipe that nobody reads any more is an error, and does not wait for a reader
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def kept(eye: JobReader, ref: JobRef) -> JobFiles:
    """Return a job that may have left files where they can be had; refuse any other."""
    found = eye.find(ref)
    runtime = eye.runtime(found)
    job = eye.spec(found, runtime)
    openshift = any(api.startswith("security.openshift.io/") for api in eye.served)
    files = JobFiles(job, found, runtime, None if openshift else well_known.PLAIN_USER)
    if not (volumes(job) or files.claims):
        raise Unsupported(
            f"the files of {found.ref} are deleted with its pods: use a volume to keep files",
            hint="give the job a volume of kind s3 or claim, not read only, and write results there",
        )
    return files


def volumes(job: MPIJob) -> list[Volume]:
    """Return the S3 volumes that the job may have written to."""
    return [one for one in job.volumes if one.kind is VolumeKind.S3 and not one.read_only]


def left(api: Api, files: JobFiles, policy: Policy) -> list[Artifact]:
    """Return the files of those buckets, and those of the claims that have changed since the job was submitted."""
    found = [*in_buckets(api, files.job, policy)]
    if files.claims:
        with _reader(api, files, policy) as reader:
            found += claim_files.left(reader, files, policy)
    return sorted(found)


def in_buckets(api: Api, job: MPIJob, policy: Policy) -> Iterator[Artifact]:
    """Yield the files of those buckets."""
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


@contextmanager
def _reader(api: Api, files: JobFiles, policy: Policy) -> Iterator[Reader]:
    seconds = math.ceil(policy.download_seconds or claim_reader.READ_SECONDS)
    with (
        translated(f"read the claims of {files.job.name}"),
        claim_reader.reader(api, files, seconds) as reader,
    ):
        yield reader


def fetch(api: Api, files: JobFiles, path: str, target: Path, policy: Policy) -> None:
    """Copy one of those files to this machine."""
    volume = _volume(files, path)
    if volume is not None and volume.kind is VolumeKind.CLAIM:
        with _reader(api, files, policy) as reader:
            claim_files.fetch_one(reader, path, lambda _, pieces: _written(target, pieces), policy)
        return
    name = path.removeprefix(_stem(volume)) if volume is not None else ""
    if volume is None or not name or name.endswith("/") or ".." in name.split("/"):
        raise claim_files.missing(path)
    with Guard(policy) as guard, closing(_bucket(api, files.job, volume, guard)) as bucket:
        try:
            _written(target, bucket.read(name))
        except NotFound:
            raise claim_files.missing(path) from None


def fetch_many(
    api: Api, files: JobFiles, paths: Sequence[str], directory: Path, policy: Policy
) -> tuple[str, ...]:
    """Copy files, and those of folders, below a directory, or all of them without paths; return which."""
    on_claims = [one for one in paths if (volume := _volume(files, one)) and volume.kind is VolumeKind.CLAIM]
    others = [one for one in paths if one not in set(on_claims)]
    if not paths:
        others = [one.path for one in in_buckets(api, files.job, policy)]
    found = [one for path in others for one in _fetched_object(api, files, path, directory, policy)]
    if on_claims or (files.claims and not paths):
        with _reader(api, files, policy) as reader:
            wanted = on_claims or [one.path for one in claim_files.left(reader, files, policy)]
            found += claim_files.fetch_below(reader, wanted, directory, policy) if wanted else []
    return tuple(dict.fromkeys(found))


def _fetched_object(api: Api, files: JobFiles, path: str, directory: Path, policy: Policy) -> Iterator[str]:
    """Copy an object of a bucket, or every one of the folder where none has the name."""
    try:
        fetch(api, files, path, directory / path, policy)
        yield path
    except NotFound:
        stem = path.rstrip("/") + "/"
        below = [one.path for one in in_buckets(api, files.job, policy) if one.path.startswith(stem)]
        if not below:
            raise
        for one in below:
            fetch(api, files, one, directory / one, policy)
            yield one


def _volume(files: JobFiles, path: str) -> Volume | None:
    """Return the volume in which a path lies, the innermost of several; None for one that leads elsewhere."""
    if ".." in path.split("/") or path.startswith("/") or "\0" in path:
        return None
    found = [one for one in (*volumes(files.job), *files.claims) if f"{path}/".startswith(_stem(one))]
    return max(found, key=lambda one: len(_stem(one)), default=None)


def _written(target: Path, pieces: Iterator[bytes]) -> None:
    first = next(pieces, b"")  # before anything is made here
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
    name, folder = s3_volumes.split_source(volume.source)
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
