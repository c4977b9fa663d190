"""The two directories of an attempt outside the engine's home, safe from other users (docs/decisions/0046).

The run directory has the hostfile and the agent that mpirun executes, and is in XDG_RUNTIME_DIR if there is one. The
other is the ranks' TMPDIR. Neither can be in the home, because hydra does not quote paths, and a socket's path has 108
bytes at most. Other users may write to the parents, so names are random, inodes are recorded, and both are checked
before each use.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from mpijob import atomic_write, codec, ownership
from mpijob.backends.local.storage.paths import Home
from mpijob.errors import UnsafePath

_PREFIX = "mpijob-"
# Of 108 for a socket, this leaves 44 bytes for the names that libraries choose.
_MAX_PATH_BYTES = 64
_PLAIN = re.compile(r"[\w/.+-]+", re.ASCII)
_RECORD = "private-dirs.json"
_log = logging.getLogger(__name__)


def placeholder(uid: str) -> str:
    """Return the path in a plan for which each attempt (`AttemptSpec`) puts its own run directory."""
    # Nothing is created or read there. Releases before 0.2 used this path: their runners, which may still work when
    # this release is installed, can run its plans.
    return f"/tmp/mpijob-{uid[:12]}"  # noqa: S108 - a name only


class Parent(msgspec.Struct, frozen=True):
    """A directory that was found safe to create private ones in; inode 0: one in the home, not created yet."""

    path: str
    device: int
    inode: int


class PrivateDir(msgspec.Struct, frozen=True):
    """A directory of one attempt; inode 0: planned, not created yet."""

    path: str
    device: int = 0
    inode: int = 0

    def check(self, *, missing_ok: bool = False) -> None:
        """Raise UnsafePath unless this is the directory that was created, and closed to other users."""
        problem = self._problem()
        if problem and not (missing_ok and not os.path.lexists(self.path)):
            raise UnsafePath(
                f"{self.path} is no longer the private directory of this attempt: {problem}",
                hint="find out what changes it, then run the job again with: mpijob retry",
            )

    def _problem(self) -> str:
        try:
            status = os.lstat(self.path)
        except OSError as error:
            return str(error.strerror)
        if not stat.S_ISDIR(status.st_mode):
            return "it is not a directory"
        if status.st_uid != os.geteuid():
            return f"its owner is {ownership.name(status.st_uid)}"
        if status.st_mode & 0o077:
            return f"its mode is {stat.S_IMODE(status.st_mode):04o}"
        if self.inode and (status.st_dev, status.st_ino) != (self.device, self.inode):
            return "it is another directory of that name"
        return ""


class PrivateDirs(msgspec.Struct, frozen=True):
    """Both directories of one attempt."""

    run: PrivateDir
    temporary: PrivateDir

    def check(self, *, missing_ok: bool = False) -> None:
        """Raise UnsafePath if one of them is not safe any more."""
        self.run.check(missing_ok=missing_ok)
        self.temporary.check(missing_ok=missing_ok)

    def lock(self) -> tuple[int, ...]:
        """Lock both directories; return the open descriptors, which hold the locks."""
        # systemd-tmpfiles removes old directories from /tmp, except locked ones (tmpfiles.d(5)).
        fds = tuple(
            os.open(directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            for directory in (self.run, self.temporary)
        )
        for fd in fds:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return fds


class Parents(msgspec.Struct, frozen=True):
    """Safe parents for the directories of an attempt, the best first."""

    run: tuple[Parent, ...]
    temporary: tuple[Parent, ...]


def parents(home: Home, environ: Mapping[str, str]) -> Parents:
    """Return safe parents for private directories; call it before the job's namespaces are entered."""
    # In a user namespace, root and other users look alike; and a volume of the job may be mounted over a parent.
    shared = [environ.get("TMPDIR", ""), "/tmp", "/var/tmp"]  # noqa: S108 - judged below
    # TMPDIR is never in XDG_RUNTIME_DIR, which is small, and is removed after the user's last logout.
    temporary = (
        *_usable_parents(_temporary_parent(path) for path in shared),
        *_usable_parents([_home_parent(home.root / "run")]),
    )
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    return Parents(run=(*_usable_parents([_runtime_parent(runtime)]), *temporary), temporary=temporary)


def _usable_parents(candidates: Iterable[Parent | None]) -> tuple[Parent, ...]:
    return tuple(parent for parent in candidates if parent is not None)


def _runtime_parent(path: str) -> Parent | None:
    """Return the runtime directory if owner and mode are those of the XDG Base Directory Specification."""
    status = _stat_safe(path)
    if status is None or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o700:
        return None
    return Parent(path, status.st_dev, status.st_ino)


def _temporary_parent(path: str) -> Parent | None:
    """Return a directory for temporary files, None if others may replace entries of this user in it."""
    status = _stat_safe(path)
    if status is None or not ownership.trusted(status.st_uid) or ownership.of_shared(status):
        return None
    return Parent(path, status.st_dev, status.st_ino) if os.access(path, os.W_OK | os.X_OK) else None


def _home_parent(path: Path) -> Parent | None:
    return Parent(str(path), 0, 0) if _is_short(str(path)) else None


def _stat_safe(path: str) -> os.stat_result | None:
    if not os.path.isabs(path) or not _is_short(path) or ownership.above(path):
        return None
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISDIR(status.st_mode) else None


def _is_short(path: str) -> bool:
    return len(os.fsencode(_random_path(path))) <= _MAX_PATH_BYTES and _PLAIN.fullmatch(path) is not None


def _random_path(parent: str) -> str:
    return os.path.join(parent, f"{_PREFIX}{secrets.token_hex(8)}")


def create(attempt: Path, where: Parents) -> PrivateDirs:
    """Create the directories of an attempt, and record them in the attempt's directory."""
    # Recorded before too: if this process is killed in between, `remove` still finds them.
    planned = PrivateDirs(
        run=PrivateDir(_random_path(_first_unchanged(where.run))),
        temporary=PrivateDir(_random_path(_first_unchanged(where.temporary))),
    )
    _write(attempt, planned)
    created = PrivateDirs(run=_create(planned.run), temporary=_create(planned.temporary))
    _write(attempt, created)
    created.check()
    return created


def _first_unchanged(candidates: tuple[Parent, ...]) -> str:
    """Return the first parent that is, in the present mount namespace, the directory that was found safe."""
    for parent in candidates:
        if not parent.inode:
            os.makedirs(parent.path, mode=0o700, exist_ok=True)
            return parent.path
        try:
            status = os.lstat(parent.path)
        except OSError:
            continue
        if (status.st_dev, status.st_ino) == (parent.device, parent.inode):
            return parent.path
    raise UnsafePath(
        "no suitable directory for temporary files: it must be safe from other users, short and without "
        "special characters",
        hint="set TMPDIR to a directory of your own of at most 40 characters, or: chmod 1777 /tmp",
    )


def _create(planned: PrivateDir) -> PrivateDir:
    # Without `exist_ok`: another user's directory must not be used.
    os.mkdir(planned.path, 0o700)
    status = os.lstat(planned.path)
    return PrivateDir(planned.path, status.st_dev, status.st_ino)


def remove(attempt: Path) -> None:
    """Remove the directories of an attempt, except one that is not the recorded one."""
    recorded = _read(attempt)
    for directory in (recorded.run, recorded.temporary) if recorded else ():
        # It may never have been created, or be removed already.
        try:
            status = os.lstat(directory.path)
        except OSError:
            continue
        is_same = not directory.inode or (status.st_dev, status.st_ino) == (directory.device, directory.inode)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and is_same:
            # It follows no links, not even one that is created meanwhile (`shutil.rmtree.avoids_symlink_attacks`).
            shutil.rmtree(directory.path, ignore_errors=True)
        else:
            _log.warning("not removing %s: it was replaced by another user or program", directory.path)


def _write(attempt: Path, directories: PrivateDirs) -> None:
    atomic_write.write(attempt / _RECORD, msgspec.json.encode(directories))


def _read(attempt: Path) -> PrivateDirs | None:
    try:
        return codec.decode((attempt / _RECORD).read_bytes(), PrivateDirs)
    except (FileNotFoundError, NotADirectoryError):
        return None
