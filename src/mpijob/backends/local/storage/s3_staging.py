"""The S3 volumes of an attempt: fetched into directories of this machine before it starts, stored when it has ended."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mpijob import codec
from mpijob.backends import s3_volumes
from mpijob.backends.local.planning.volumes import Bind
from mpijob.backends.s3_volumes import Bucket, Connection, Transferred
from mpijob.errors import BackendError, Finding, InvalidJob, Severity
from mpijob.model import Plan, Volume, VolumeKind


class S3Staging:
    """The S3 volumes of one attempt."""

    def __init__(self, plan: Plan, connections: dict[str, Connection]) -> None:
        places = {bind.target: Path(bind.source) for bind in _binds(plan)}
        self._volumes = [(one, places[one.mount]) for one in plan.job.volumes if one.kind is VolumeKind.S3]
        self._connections = connections
        self._known: dict[str, s3_volumes.FileStamps] = {}

    def __bool__(self) -> bool:
        return bool(self._volumes)

    def fetch(self, pulse: Callable[[], object]) -> Iterator[str]:
        """Fetch every volume; yield a sentence about each; raise BackendError where one cannot be had."""
        for volume, place in self._volumes:
            _clear(place)
            moved = s3_volumes.fetch(self._bucket(volume), place, pulse)
            self._known[volume.mount] = s3_volumes.stamp_files(place)
            yield f"{volume.mount}: {moved} fetched from {volume.source}"

    def store(self, *, everything: bool = False) -> Iterator[str | Finding]:
        """Store what changed, or all of it; yield a sentence, or a finding where something cannot be stored."""
        for volume, place in self._volumes:
            if volume.read_only or not place.is_dir():
                continue
            known = {} if everything else self._known.get(volume.mount, {})
            try:
                moved, _ = s3_volumes.store(self._bucket(volume), place, known)
            except (BackendError, InvalidJob, OSError) as error:
                yield _not_stored_finding(volume, str(getattr(error, "message", error)))
            else:
                yield _stored_message(volume, moved)

    def _bucket(self, volume: Volume) -> Bucket:
        if volume.source not in self._connections:
            raise BackendError(f"the data connection of {volume.source} no longer exists")
        return Bucket(self._connections[volume.source], s3_volumes.split_source(volume.source)[1])


def _clear(place: Path) -> None:
    """Take everything out of a directory; it stays itself, because the job sees it at another place already."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one in place.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink()


def _binds(plan: Plan) -> list[Bind]:
    return [codec.convert(volume, Bind) for volume in plan.volumes]


def _stored_message(volume: Volume, moved: Transferred) -> str:
    return f"{volume.mount}: {moved} stored in {volume.source}"


def _not_stored_finding(volume: Volume, why: str) -> Finding:
    return Finding(
        code="DATA_NOT_STORED",
        field="volumes",
        message=f"what the job wrote to {volume.mount} could not be stored in {volume.source}: {why}",
        hint="the files are kept; when the object store is reachable: mpijob artifacts store JOB",
        severity=Severity.WARNING,
    )
