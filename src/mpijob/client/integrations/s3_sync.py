"""Folders of buckets, fetched and stored by a connection's name: by hand, and in the pods of jobs on a cluster.

In a pod nobody sees settings: there `env` is the connection, whose variables the kubelet fills from the Secret.
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
    """Fetch a folder into a directory, which is made; return what came."""
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
    """Store a directory in a folder; return what went."""
    moved, _ = s3_volumes.store(_bucket(settings, source), _directory(directory), {})
    return f"{moved} stored in {source}"


def keep(settings: Settings, source: str, directory: str, every: float) -> Iterator[str]:
    """Store what changes until SIGTERM, then once more; yield what went each time that something did.

    A store that does not answer is asked again the next time: only the last time may fail.
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
