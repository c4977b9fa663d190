"""Folders of buckets, fetched and stored by a connection's name: by hand, and in the pods of jobs on a cluster.

In a pod nobody sees settings: there `env` is the connection, whose variables the kubelet fills from the Secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mpijob.backends import buckets
from mpijob.backends.buckets import Bucket
from mpijob.client import ending
from mpijob.errors import BackendError, InvalidJob
from mpijob.settings import Settings


def _bucket(settings: Settings, source: str) -> Bucket:
    name, folder = buckets.parted(source)
    return Bucket(buckets.named(name, settings.connections, os.environ), folder)


def _directory(path: str) -> Path:
    found = Path(path)
    if not found.is_dir():
        raise InvalidJob(f"there is no directory {path}", hint=f"make it: mkdir -p {path}")
    return found


def fetch(settings: Settings, source: str, directory: str) -> str:
    """Fetch a folder into a directory, which is made; return what came."""
    target, bucket = Path(directory), _bucket(settings, source)
    try:
        target.mkdir(parents=True, exist_ok=True)
        return f"{buckets.fetch(bucket, target)} fetched from {source}"
    except OSError as error:
        raise BackendError(
            f"{source} cannot be fetched to {directory}: {error.strerror or error}",
            hint="name a directory where you may write, with room left",
        ) from error


def store(settings: Settings, source: str, directory: str) -> str:
    """Store a directory in a folder; return what went."""
    moved, _ = buckets.store(_bucket(settings, source), _directory(directory), {})
    return f"{moved} stored in {source}"


def keep(settings: Settings, source: str, directory: str, every: float) -> Iterator[str]:
    """Store what changes until SIGTERM, then once more; yield what went each time that something did.

    A store that does not answer is asked again the next time: only the last time may fail.
    """
    ended = ending.until_ended()
    bucket, place = _bucket(settings, source), _directory(directory)
    stored = dict(bucket.names())
    known = {name: about for name, about in buckets.seen(place).items() if stored.get(name) == about[0]}
    last = False
    while not last:
        last = ended.wait(every)
        try:
            moved, known = buckets.store(bucket, place, known)
        except BackendError as error:
            if last:
                raise
            yield f"not stored yet: {error.message}"
        else:
            if moved.files:
                yield f"{moved} stored in {source}"
