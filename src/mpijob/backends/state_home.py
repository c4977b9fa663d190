"""The directory of mpijob's own state on this machine: closed to other users, refused where others could do harm."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from mpijob import ownership
from mpijob.errors import BackendError, UnsafePath

if TYPE_CHECKING:
    from pathlib import Path


class StateHome:
    """The directory (`MPIJOB_HOME`); made on first use with mode 0700. Engines keep their own things below it."""

    def __init__(self, root: str | Path) -> None:
        self._root = str(root)

    @cached_property
    def root(self) -> Path:
        """The directory itself."""
        from pathlib import Path  # a list needs none: start-up is a feature

        return Path(self._root)

    @property
    def runner_log(self) -> Path:
        """Where a runner writes what it could not tell a job."""
        return self.root / "runner.log"

    def mpi(self, family: str) -> Path:
        """Where one MPI family is installed by us."""
        return self.root / "mpi" / family

    def ensure(self) -> None:
        """Make the home, or say in one sentence why that is impossible or another user could do harm there."""
        try:
            if problem := ownership.above(self._root):
                raise _not_yours(self._root, problem)
            os.makedirs(self._root, mode=0o700, exist_ok=True)
            about = os.stat(self._root)
            if about.st_uid != os.geteuid():
                raise _not_yours(self._root, f"its owner is {ownership.name(about.st_uid)}")
            if about.st_mode & 0o077:
                os.chmod(self._root, 0o700)
        except (FileExistsError, NotADirectoryError) as error:
            raise BackendError(
                f"{self._root} cannot be the home of jobs: it is a file, not a directory",
                hint="set MPIJOB_HOME to a directory that exists or can be created",
            ) from error
        except OSError as error:
            raise cannot_write(self._root, str(error.strerror)) from error


def _not_yours(path: str, why: str) -> UnsafePath:
    return UnsafePath(
        f"{path} cannot be the home of your jobs: {why}",
        hint="set MPIJOB_HOME to a directory of your own, in one that others cannot change",
    )


def cannot_write(path: str | Path, why: str) -> BackendError:
    """Return the error for a place that cannot be written."""
    return BackendError(
        f"cannot write to {path}: {why}",
        hint="free some space, or set MPIJOB_HOME to a directory that you may write to",
    )
