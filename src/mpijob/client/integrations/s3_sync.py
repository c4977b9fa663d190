"""Copy folders of S3 buckets from and to directories: for users, and in pods of jobs.

Pods have no settings: there the connection is named `env`, and its variables come from a Secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mpijob.backends import s3_volumes
from mpijob.backends.s3_volumes import Bucket
from mpijob.client.services import shutdown
from mpijob.errors import BackendError, InvalidJob
from mpijob.settings import Settings


def _bucket(settings: Settings, source: str) -> Bucket:
    name, folder = s3_volumes.split_source(source)
    return Bucket(s3_volumes.find_connection(name, settings.connections, os.environ), folder)


def _directory(path: str) -> Path:
    found = Path(path)
    if not found.is_dir():
        raise InvalidJob(f"there is no directory {path}", hint=f"create it: mkdir -p {path}")
    return found


def fetch(settings: Settings, source: str, directory: str) -> str:
    """Download a folder into a directory, which is created; return a summary."""
    target, bucket = Path(directory), _bucket(settings, source)
    try:
        target.mkdir(parents=True, exist_ok=True)
        return f"{s3_volumes.fetch(bucket, target)} fetched from {source}"
    except OSError as error:
        raise BackendError(
            f"{source} cannot be downloaded to {directory}: {error.strerror or error}",
            hint="name a writable directory with free space",
        ) from error


def store(settings: Settings, source: str, directory: str) -> str:
    """Upload a directory into a folder; return a summary."""
    moved, _ = s3_volumes.store(_bucket(settings, source), _directory(directory), {})
    return f"{moved} stored in {source}"


def keep(settings: Settings, source: str, directory: str, every: float) -> Iterator[str]:
    """Upload changes until SIGTERM, then once more; yield a summary of each upload.

    An error of the store is tried again in the next round; only that of the last round is raised.
    """
    ended = shutdown.until_ended()
    bucket, place = _bucket(settings, source), _directory(directory)
    stored = dict(bucket.names())
    known = {
        name: about for name, about in s3_volumes.stamp_files(place).items() if stored.get(name) == about[0]
    }
    last = False
    while not last:
        last = ended.wait(every)
        try:
            moved, known = s3_volumes.store(bucket, place, known)
        except BackendError as error:
            if last:
                raise
            yield f"not uploaded yet: {error.message}"
        else:
            if moved.files:
                yield f"{moved} stored in {source}"
