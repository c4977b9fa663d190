"""The directory of mpijob's own state on this machine (`MPIJOB_HOME`): closed to other users.

It is refused where other users could replace its content (docs/decisions/0046). What is in it is known by the
engines.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from mpijob import ownership
from mpijob.errors import BackendError, UnsafePath

if TYPE_CHECKING:
    from pathlib import Path


class StateHome:
    """The directory; engines have their own files below it. `ensure` creates it."""

    def __init__(self, root: str | Path) -> None:
        self._root = str(root)

    @cached_property
    def root(self) -> Path:
        # Imported here because `mpijob list` does not need it and must start quickly.
        from pathlib import Path

        return Path(self._root)

    @property
    def runner_log(self) -> Path:
        """The standard error of background processes."""
        return self.root / "runner.log"

    def mpi(self, family: str) -> Path:
        """The prefix where `mpijob mpi install` installs a family."""
        return self.root / "mpi" / family

    def ensure(self) -> None:
        """Create the directory with mode 0700.

        Raise UnsafePath if another user could replace it, BackendError if it cannot be created.
        """
        try:
            if problem := ownership.above(self._root):
                raise _unsafe_home(self._root, problem)
            os.makedirs(self._root, mode=0o700, exist_ok=True)
            status = os.stat(self._root)
            if status.st_uid != os.geteuid():
                raise _unsafe_home(self._root, f"its owner is {ownership.name(status.st_uid)}")
            # It may have existed before, with the mode of the usual umask.
            if status.st_mode & 0o077:
                os.chmod(self._root, 0o700)
        except (FileExistsError, NotADirectoryError) as error:
            raise BackendError(
                f"{self._root} cannot be the home of jobs: it is a file, not a directory",
                hint="set MPIJOB_HOME to a directory that exists or can be created",
            ) from error
        except OSError as error:
            raise cannot_write(self._root, str(error.strerror)) from error


def _unsafe_home(path: str, reason: str) -> UnsafePath:
    return UnsafePath(
        f"{path} cannot be the home of your jobs: {reason}",
        hint="set MPIJOB_HOME to a directory of your own, in one that others cannot change",
    )


def cannot_write(path: str | Path, reason: str) -> BackendError:
    return BackendError(
        f"cannot write to {path}: {reason}",
        hint="free some space, or set MPIJOB_HOME to a directory that you may write to",
    )
