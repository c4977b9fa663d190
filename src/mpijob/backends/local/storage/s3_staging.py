"""S3 volumes of an attempt: downloaded into directories of this machine before it starts, uploaded after its end.

The transfer itself is in `backends.s3_volumes`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mpijob import codec
from mpijob.backends import s3_volumes
from mpijob.backends.local.planning.volumes import Bind
from mpijob.backends.s3_volumes import Bucket, Connection
from mpijob.errors import BackendError, Finding, InvalidJob, Severity
from mpijob.model import Plan, Volume, VolumeKind


class S3Staging:
    """The S3 volumes of one attempt."""

    def __init__(self, plan: Plan, connections: dict[str, Connection]) -> None:
        binds = (codec.convert(volume, Bind) for volume in plan.volumes)
        directories = {bind.target: Path(bind.source) for bind in binds}
        self._volumes = [
            (volume, directories[volume.mount]) for volume in plan.job.volumes if volume.kind is VolumeKind.S3
        ]
        self._connections = connections
        self._known: dict[str, s3_volumes.FileStamps] = {}

    def __bool__(self) -> bool:
        return bool(self._volumes)

    def fetch(self, before_file: Callable[[], object]) -> Iterator[str]:
        """Download every volume; yield a sentence about each; raise BackendError if one cannot be downloaded."""
        for volume, directory in self._volumes:
            _clear(directory)
            transferred = s3_volumes.fetch(self._bucket(volume), directory, before_file)
            self._known[volume.mount] = s3_volumes.stamp_files(directory)
            yield f"{volume.mount}: {transferred} fetched from {volume.source}"

    def store(self, *, everything: bool = False) -> Iterator[str | Finding]:
        """Upload what changed since `fetch`, or everything; yield a sentence or a finding for each volume."""
        for volume, directory in self._volumes:
            if volume.read_only or not directory.is_dir():
                continue
            known = {} if everything else self._known.get(volume.mount, {})
            try:
                transferred, _ = s3_volumes.store(self._bucket(volume), directory, known)
            # One volume's failure must not keep the others from being stored.
            except (BackendError, InvalidJob, OSError) as error:
                yield _not_stored_finding(volume, str(getattr(error, "message", error)))
            else:
                yield f"{volume.mount}: {transferred} stored in {volume.source}"

    def _bucket(self, volume: Volume) -> Bucket:
        if volume.source not in self._connections:
            raise BackendError(f"the data connection of {volume.source} no longer exists")
        return Bucket(self._connections[volume.source], s3_volumes.split_source(volume.source)[1])


def _clear(directory: Path) -> None:
    # The directory itself stays, because it is mounted in the job's namespace already.
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _not_stored_finding(volume: Volume, why: str) -> Finding:
    return Finding(
        code="DATA_NOT_STORED",
        field="volumes",
        message=f"what the job wrote to {volume.mount} could not be stored in {volume.source}: {why}",
        hint="the files are kept; when the object store is reachable: mpijob artifacts store JOB",
        severity=Severity.WARNING,
    )
