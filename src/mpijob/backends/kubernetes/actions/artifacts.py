"""The files that a cluster's job left, where they can be read from here: in buckets and on volume claims.

A file's path is its path in the job without the first slash: `out/model/weights`. A bucket is read from this
machine with the Secret of the data connection, which the user must be able to read. A user who can write such
a Secret chooses where this process connects, so a server that acts for users passes a restricted policy. A
claim is read through a short-lived pod (`claim_reader`), for which the user needs permission to create it and
to run commands in it.
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

# O_NONBLOCK: opening a pipe without a reader is an error instead of waiting. O_NOFOLLOW: the target may be a link.
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def job_files(reader: JobReader, ref: JobRef) -> JobFiles:
    """Return the files of a job; raise Unsupported if it has no volume that outlives its pods."""
    found = reader.find(ref)
    runtime = reader.runtime(found)
    job = reader.spec(found, runtime)
    openshift = any(api.startswith("security.openshift.io/") for api in reader.served)
    files = JobFiles(job, found, runtime, None if openshift else well_known.PLAIN_USER)
    if not (volumes(job) or files.claims):
        raise Unsupported(
            f"the files of {found.ref} are deleted with its pods: use a volume to keep files",
            hint="add a volume of kind s3 or claim, not read-only, to the job, and write results there",
        )
    return files


def volumes(job: MPIJob) -> list[Volume]:
    """Return the S3 volumes that the job may have written to."""
    return [volume for volume in job.volumes if volume.kind is VolumeKind.S3 and not volume.read_only]


def list_files(api: Api, files: JobFiles, policy: Policy) -> list[Artifact]:
    """Return the files in the buckets, and those on claims that changed since the job was submitted."""
    found = [*list_buckets(api, files.job, policy)]
    if files.claims:
        with _reader(api, files, policy) as reader:
            found += claim_files.left(reader, files, policy)
    return sorted(found)


def list_buckets(api: Api, job: MPIJob, policy: Policy) -> Iterator[Artifact]:
    """Yield the files in the buckets; raise TooLarge beyond the policy's number."""
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
    """Copy a file to this machine; raise NotFound."""
    volume = _volume(files, path)
    if volume is not None and volume.kind is VolumeKind.CLAIM:
        with _reader(api, files, policy) as reader:
            claim_files.fetch_one(reader, path, lambda _, pieces: _write_from_first(target, pieces), policy)
        return
    name = path.removeprefix(_stem(volume)) if volume is not None else ""
    if volume is None or not name or name.endswith("/") or ".." in name.split("/"):
        raise claim_files.missing(path)
    with Guard(policy) as guard, closing(_bucket(api, files.job, volume, guard)) as bucket:
        try:
            _write_from_first(target, bucket.read(name))
        except NotFound:
            raise claim_files.missing(path) from None


def fetch_many(
    api: Api, files: JobFiles, paths: Sequence[str], directory: Path, policy: Policy
) -> tuple[str, ...]:
    """Copy files and folders below a directory, all files without `paths`; return the copied ones."""
    on_claims = [
        path for path in paths if (volume := _volume(files, path)) and volume.kind is VolumeKind.CLAIM
    ]
    others = [path for path in paths if path not in set(on_claims)]
    if not paths:
        others = [artifact.path for artifact in list_buckets(api, files.job, policy)]
    found = [name for path in others for name in _fetch_objects(api, files, path, directory, policy)]
    if on_claims or (files.claims and not paths):
        with _reader(api, files, policy) as reader:
            wanted = on_claims or [artifact.path for artifact in claim_files.left(reader, files, policy)]
            found += claim_files.fetch_below(reader, wanted, directory, policy) if wanted else []
    return tuple(dict.fromkeys(found))


def _fetch_objects(api: Api, files: JobFiles, path: str, directory: Path, policy: Policy) -> Iterator[str]:
    """Copy an object of a bucket, or the objects of a folder with that name; yield their paths."""
    try:
        fetch(api, files, path, directory / path, policy)
        yield path
    except NotFound:
        stem = path.rstrip("/") + "/"
        below = [
            artifact.path
            for artifact in list_buckets(api, files.job, policy)
            if artifact.path.startswith(stem)
        ]
        if not below:
            raise
        for name in below:
            fetch(api, files, name, directory / name, policy)
            yield name


def _volume(files: JobFiles, path: str) -> Volume | None:
    """Return the innermost volume that contains a path; None for one outside of all volumes."""
    if ".." in path.split("/") or path.startswith("/") or "\0" in path:
        return None
    found = [
        volume for volume in (*volumes(files.job), *files.claims) if f"{path}/".startswith(_stem(volume))
    ]
    return max(found, key=lambda volume: len(_stem(volume)), default=None)


def _write_from_first(target: Path, pieces: Iterator[bytes]) -> None:
    # An error of the first read must leave no empty file behind.
    first = next(pieces, b"")
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
    """Return a data connection by the name of its Secret; raise NotAllowed."""
    data = secret_values.values(api, namespace, name)
    if not data:
        raise NotAllowed(
            f"data connection '{name}' is a Secret of namespace '{namespace}' that does not exist or "
            f"that you may not read",
            hint="ask for the RBAC permission 'get secrets', or ask a user who has it",
        )
    return s3_volumes.from_variables(data)
