"""The two directories of an attempt that lie outside the engine's home: its run directory and its TMPDIR.

The run directory holds the hostfile and the agent that mpirun executes; it is in XDG_RUNTIME_DIR where there is one.
TMPDIR is the ranks' own, in the system's directory for temporary files: XDG_RUNTIME_DIR is small, and gone after the
last logout. Neither can be in the home: MPI libraries stumble over spaces, and a socket's path ends at 108 bytes.

Other users may write beside them. So each attempt gets names that nobody can guess, made by a `mkdir` that must make
them; the attempt's own directory in the home says which they are; and whoever uses one of them, or takes it away,
looks first whether it is still the one that was made. Never is a link followed.
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
_MAX_PATH_BYTES = 64  # of a directory's own path: a library's sockets in it have 44 bytes left
_PLAIN = re.compile(r"[\w/.+-]+", re.ASCII)
_RECORD = "private-dirs.json"
_log = logging.getLogger(__name__)


def placeholder(uid: str) -> str:
    """Return what stands in a plan for the run directory, whose name no plan knows: each attempt has one of its own.

    Nothing is ever made or looked for there. It is the path that releases before 0.2 used, so that a runner of theirs,
    still at work when a newer release is installed beside it, can run a plan of ours.
    """
    return f"/tmp/mpijob-{uid[:12]}"  # noqa: S108 - a name only: `Orders` puts the run directory in its place


class Parent(msgspec.Struct, frozen=True):
    """A directory in which private ones may be made, as it was when it was judged."""

    path: str
    device: int
    inode: int


class PrivateDir(msgspec.Struct, frozen=True):
    """A directory that was made for one attempt. What is not made yet has no inode."""

    path: str
    device: int = 0
    inode: int = 0

    def check(self, *, missing_ok: bool = False) -> None:
        """Raise unless the directory is still the one that was made, and closed to others."""
        problem = self._problem()
        if problem and not (missing_ok and not os.path.lexists(self.path)):
            raise UnsafePath(
                f"{self.path} is no longer the private directory of this attempt: {problem}",
                hint="find out what changes it, then run the job again with: mpijob retry",
            )

    def _problem(self) -> str:
        try:
            about = os.lstat(self.path)
        except OSError as error:
            return str(error.strerror)
        if not stat.S_ISDIR(about.st_mode):
            return "it is not a directory"
        if about.st_uid != os.geteuid():
            return f"its owner is {ownership.name(about.st_uid)}"
        if about.st_mode & 0o077:
            return f"its mode is {stat.S_IMODE(about.st_mode):04o}"
        if self.inode and (about.st_dev, about.st_ino) != (self.device, self.inode):
            return "it is another directory of that name"
        return ""


class PrivateDirs(msgspec.Struct, frozen=True):
    """The directories of one attempt."""

    run: PrivateDir
    temporary: PrivateDir

    def check(self, *, missing_ok: bool = False) -> None:
        """Raise unless both are still what was made."""
        self.run.check(missing_ok=missing_ok)
        self.temporary.check(missing_ok=missing_ok)

    def lock(self) -> tuple[int, ...]:
        """Return open descriptors by which cleaners leave both alone (systemd-tmpfiles heeds a lock), however old."""
        held = tuple(
            os.open(one.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            for one in (self.run, self.temporary)
        )
        for fd in held:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return held


class Parents(msgspec.Struct, frozen=True):
    """Where the directories of an attempt may be made, the best place first."""

    run: tuple[Parent, ...]
    temporary: tuple[Parent, ...]


def parents(home: Home, environ: Mapping[str, str]) -> Parents:
    """Return where private directories may be made. To be asked before the namespaces of a job are entered.

    Inside them root and other users cannot be told apart, and a volume of the job may lie over such a directory.
    """
    shared = [environ.get("TMPDIR", ""), "/tmp", "/var/tmp"]  # noqa: S108 - judged below
    ours = home.root / "run"  # where the machine has none that is safe
    temporary = (
        *_usable_parents(_temporary_parent(path) for path in shared),
        *_usable_parents([_home_parent(ours)]),
    )
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    return Parents(run=(*_usable_parents([_runtime_parent(runtime)]), *temporary), temporary=temporary)


def _usable_parents(found: Iterable[Parent | None]) -> tuple[Parent, ...]:
    return tuple(one for one in found if one is not None)


def _runtime_parent(path: str) -> Parent | None:
    """Return the user's runtime directory, if it is one by the XDG Base Directory Specification."""
    about = _stat_safe(path)
    if about is None or about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) != 0o700:
        return None
    return Parent(path, about.st_dev, about.st_ino)


def _temporary_parent(path: str) -> Parent | None:
    """Return a directory for temporary files, unless others may exchange what we make there."""
    about = _stat_safe(path)
    if about is None or not ownership.trusted(about.st_uid) or ownership.of_shared(about):
        return None
    return Parent(path, about.st_dev, about.st_ino) if os.access(path, os.W_OK | os.X_OK) else None


def _home_parent(path: Path) -> Parent | None:
    """Return a directory in the engine's home, which is closed to others; none of it where the path is too long."""
    return Parent(str(path), 0, 0) if _is_short(str(path)) else None


def _stat_safe(path: str) -> os.stat_result | None:
    if not os.path.isabs(path) or not _is_short(path) or ownership.above(path):
        return None
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return about if stat.S_ISDIR(about.st_mode) else None


def _is_short(path: str) -> bool:
    return len(os.fsencode(_random_path(path))) <= _MAX_PATH_BYTES and _PLAIN.fullmatch(path) is not None


def _random_path(parent: str) -> str:
    return os.path.join(parent, f"{_PREFIX}{secrets.token_hex(8)}")


def create(attempt: Path, where: Parents) -> PrivateDirs:
    """Make the directories of an attempt and write down which they are; what is planned is written first."""
    planned = PrivateDirs(
        run=PrivateDir(_random_path(_first_unchanged(where.run))),
        temporary=PrivateDir(_random_path(_first_unchanged(where.temporary))),
    )
    _write(attempt, planned)
    made = PrivateDirs(run=_create(planned.run), temporary=_create(planned.temporary))
    _write(attempt, made)
    made.check()
    return made


def _first_unchanged(found: tuple[Parent, ...]) -> str:
    """Return the first directory that is, in this mount namespace too, the one that was judged."""
    for parent in found:
        if not parent.inode:
            os.makedirs(parent.path, mode=0o700, exist_ok=True)
            return parent.path
        try:
            about = os.lstat(parent.path)
        except OSError:
            continue
        if (about.st_dev, about.st_ino) == (parent.device, parent.inode):
            return parent.path
    raise UnsafePath(
        "no suitable directory for temporary files: it must be safe from other users, short and without "
        "special characters",
        hint="set TMPDIR to a directory of your own of at most 40 characters, or: chmod 1777 /tmp",
    )


def _create(planned: PrivateDir) -> PrivateDir:
    os.mkdir(planned.path, 0o700)  # must not be there yet: nobody else's directory is ever taken over
    about = os.lstat(planned.path)
    return PrivateDir(planned.path, about.st_dev, about.st_ino)


def remove(attempt: Path) -> None:
    """Take the directories of an attempt away; one that is not ours any more is left alone."""
    found = _read(attempt)
    for directory in (found.run, found.temporary) if found else ():
        try:
            about = os.lstat(directory.path)
        except OSError:
            continue  # it was never made, or is gone
        same = not directory.inode or (about.st_dev, about.st_ino) == (directory.device, directory.inode)
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and same:
            shutil.rmtree(
                directory.path, ignore_errors=True
            )  # follows no link, not even one that is put there now
        else:
            _log.warning("not removing %s: it was replaced by another user or program", directory.path)


def _write(attempt: Path, directories: PrivateDirs) -> None:
    atomic_write.write(attempt / _RECORD, msgspec.json.encode(directories))


def _read(attempt: Path) -> PrivateDirs | None:
    try:
        return codec.decode((attempt / _RECORD).read_bytes(), PrivateDirs)
    except (FileNotFoundError, NotADirectoryError):
        return None
