"""What a volume means on one machine: a directory of this machine, seen at the place that the job names.

A `path` volume is the directory itself. Claims, NFS exports, config maps and secrets are directories
under the engine's home, kept from job to job, so that a job that reads `/data` on a cluster finds it
here too. The place is made in the job's own mount namespace: nothing appears on the machine itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mpijob.backends.local.storage.paths import Home
from mpijob.backends.local.worker import syscalls
from mpijob.backends.local.worker.isolation import Isolation
from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.model import MPIJob, Volume, VolumeKind


class Bind(msgspec.Struct, frozen=True):
    """One directory and where the job sees it."""

    source: str
    target: str
    read_only: bool


def binds(job: MPIJob, home: Home, directory: Path) -> tuple[Bind, ...]:
    """Return what has to be shown where; shared memory is every job's own already."""
    wanted = (volume for volume in job.volumes if volume.kind is not VolumeKind.SHM)
    return tuple(Bind(str(_source(v, job, home, directory)), v.mount, v.read_only) for v in wanted)


def _source(volume: Volume, job: MPIJob, home: Home, directory: Path) -> Path:
    if volume.kind is VolumeKind.PATH:
        return (directory / os.path.expanduser(volume.source)).absolute()
    if volume.kind is VolumeKind.S3:
        return home.root / "volumes" / job.namespace / "s3" / job.name / volume.source.strip("/")
    if volume.kind is VolumeKind.SCRATCH:
        return home.root / "scratch" / job.namespace / job.name
    return home.root / "volumes" / job.namespace / volume.kind.value / (volume.source.strip("/") or "unnamed")


def check(job: MPIJob, found: tuple[Bind, ...], chosen: Isolation) -> Iterator[Finding]:
    """Yield what cannot be had here, and what is different."""
    paths = {volume.mount for volume in job.volumes if volume.kind is VolumeKind.PATH}
    for bind in found:
        if chosen is not Isolation.NAMESPACES and bind.source != bind.target:
            yield _error(bind, "cannot be mounted at another path: this machine does not allow namespaces",
                         f"use the directory's own path as the mount: {bind.source}")  # fmt: skip
        elif bind.target in paths and not os.path.isdir(bind.source):
            yield _error(bind, f"there is no directory {bind.source}", f"create it: mkdir -p {bind.source}")
        elif bind.target not in paths:
            text = f"the volume at {bind.target} is the directory {bind.source} here"
            yield Finding("LOCAL_NOTICE", text, field="volumes", severity=Severity.NOTICE)


def _error(bind: Bind, message: str, hint: str) -> Finding:
    return Finding("VOLUME_NOT_HERE", f"the volume at {bind.target}: {message}", hint, "volumes")


def raise_errors(findings: tuple[Finding, ...]) -> None:
    """Raise when a volume cannot be had here."""
    if errors := tuple(finding for finding in findings if finding.severity is Severity.ERROR):
        raise InvalidJob.of(errors)


def mount_all(found: tuple[Bind, ...], new_root: Path) -> None:
    """As PID 1 of the job's namespaces: show the directories at their places.

    A place that does not exist is made on a root of our own, in memory, on which everything of the
    machine's root is shown as it is; the machine's own directories are not touched.
    """
    if not found:
        return
    for bind in found:
        Path(bind.source).mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(not os.path.isdir(bind.target) for bind in found):
        _switch_root(new_root)
    for bind in found:
        os.makedirs(bind.target, exist_ok=True)
        syscalls.mount_bind(bind.source, bind.target, read_only=bind.read_only)


def _switch_root(new_root: Path) -> None:
    new_root.mkdir(mode=0o755, parents=True, exist_ok=True)
    syscalls.mount_tmpfs(str(new_root), mode="0755")
    for entry in sorted(os.scandir("/"), key=lambda entry: entry.name):
        _mirror(entry, new_root / entry.name)
    syscalls.change_root(str(new_root))


def _mirror(entry: os.DirEntry[str], place: Path) -> None:
    if entry.is_symlink():
        place.symlink_to(os.readlink(entry.path))
    elif entry.is_dir():
        place.mkdir()
        syscalls.mount_bind(entry.path, str(place), whole_tree=True)
