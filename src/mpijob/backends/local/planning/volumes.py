"""Volumes on this machine: directories that are mounted in the job's own mount namespace.

A `path` volume is the directory itself. Claims, NFS exports, config maps and secrets are directories in the engine's
home that stay from job to job, so that a job that reads `/data` on a cluster finds it here too.
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
    """A directory, and the path at which the job sees it."""

    source: str
    target: str
    read_only: bool


def binds(job: MPIJob, home: Home, directory: Path) -> tuple[Bind, ...]:
    """Return the mounts of a job that is submitted from `directory`."""
    # Not shared memory: each job's namespace has a /dev/shm of its own.
    mounted = (volume for volume in job.volumes if volume.kind is not VolumeKind.SHM)
    return tuple(Bind(str(_source(v, job, home, directory)), v.mount, v.read_only) for v in mounted)


def _source(volume: Volume, job: MPIJob, home: Home, directory: Path) -> Path:
    if volume.kind is VolumeKind.PATH:
        return (directory / os.path.expanduser(volume.source)).absolute()
    if volume.kind is VolumeKind.S3:
        return home.root / "volumes" / job.namespace / "s3" / job.name / volume.source.strip("/")
    if volume.kind is VolumeKind.SCRATCH:
        return home.root / "scratch" / job.namespace / job.name
    return home.root / "volumes" / job.namespace / volume.kind.value / (volume.source.strip("/") or "unnamed")


def check(job: MPIJob, mounts: tuple[Bind, ...], chosen: Isolation) -> Iterator[Finding]:
    """Yield errors for volumes that this machine cannot mount, and notices where they differ from a cluster's."""
    paths = {volume.mount for volume in job.volumes if volume.kind is VolumeKind.PATH}
    for bind in mounts:
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
    """Raise InvalidJob if there are errors among the findings."""
    if errors := tuple(finding for finding in findings if finding.severity is Severity.ERROR):
        raise InvalidJob.of(errors)


def mount_all(mounts: tuple[Bind, ...], new_root: Path) -> None:
    """Mount the directories; call it as PID 1 of the job's namespaces.

    `new_root` is a directory that may be used as the new root.
    """
    if not mounts:
        return
    for bind in mounts:
        Path(bind.source).mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(not os.path.isdir(bind.target) for bind in mounts):
        _switch_root(new_root)
    for bind in mounts:
        os.makedirs(bind.target, exist_ok=True)
        syscalls.mount_bind(bind.source, bind.target, read_only=bind.read_only)


def _switch_root(new_root: Path) -> None:
    # A mount point must exist, and one like /data cannot be created on the machine's root without root. So the new root
    # is a tmpfs, on which all directories of the old root are mounted.
    new_root.mkdir(mode=0o755, parents=True, exist_ok=True)
    syscalls.mount_tmpfs(str(new_root), mode="0755")
    for entry in sorted(os.scandir("/"), key=lambda entry: entry.name):
        _mirror(entry, new_root / entry.name)
    syscalls.change_root(str(new_root))


def _mirror(entry: os.DirEntry[str], target: Path) -> None:
    if entry.is_symlink():
        target.symlink_to(os.readlink(entry.path))
    elif entry.is_dir():
        target.mkdir()
        syscalls.mount_bind(entry.path, str(target), whole_tree=True)
