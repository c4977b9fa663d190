"""Where the local engine keeps its things: one home, closed to other users.

HOME/state.db                       jobs, events, samples
HOME/jobs/UID/work/                 the job's working directory, shared by its workers
HOME/jobs/UID/aN/logs/*.log         CRI-format logs of attempt N: launcher, worker-I, rank-R
HOME/jobs/UID/aN/workers/NAME/      one worker's own directory
HOME/schedules/                     recurring jobs (see `schedules`)
HOME/reserve                        room that is given up when the disk is full (see `disk_full`)
HOME/mpi/FAMILY/                    MPI libraries installed by `mpijob mpi install`
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from mpijob import ownership
from mpijob.errors import BackendError, UnsafePath

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "scripts")
SHIM = os.path.join(SCRIPTS, "rank.sh")
REACHING = {
    name: os.path.join(SCRIPTS, f"{name}.sh") for name in ("ssh", "pdsh")
}  # how a job's commands reach workers


class Home:
    """The local engine's directory; made on first use with mode 0700."""

    def __init__(self, root: str | Path) -> None:
        self._root = str(root)

    @cached_property
    def root(self) -> Path:
        """The directory itself."""
        from pathlib import Path  # a list needs none: start-up is a feature

        return Path(self._root)

    @property
    def database(self) -> str:
        """The state database."""
        return os.path.join(self._root, "state.db")

    @property
    def agent(self) -> Path:
        """The start agent, executable; another version of it gets another name."""
        import zlib

        with open(os.path.join(SCRIPTS, "agent.sh"), "rb") as script:
            return self.root / f"agent-{zlib.crc32(script.read()):08x}.sh"

    @property
    def wakeup_pipe(self) -> Path:
        """The pipe on which a runner without work listens."""
        return self.root / "bell"

    @property
    def reserve(self) -> Path:
        """Room for the last things that must be written down on a full disk."""
        return self.root / "reserve"

    @property
    def schedules(self) -> str:
        """Where recurring jobs are kept."""
        return os.path.join(self._root, "schedules")

    @property
    def runner_log(self) -> Path:
        """Where a runner writes what it could not tell a job."""
        return self.root / "runner.log"

    def job(self, uid: str) -> Path:
        """The directory of one job."""
        return self.root / "jobs" / uid

    def work(self, uid: str) -> Path:
        """The working directory that launcher and workers share."""
        return self.job(uid) / "work"

    def attempt(self, uid: str, attempt: int) -> Path:
        """The directory of one attempt."""
        return self.job(uid) / f"a{attempt}"

    def logs(self, uid: str, attempt: int) -> Path:
        """The log files of one attempt."""
        return self.attempt(uid, attempt) / "logs"

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
                raise _not_yours(self._root, f"it belongs to {ownership.name(about.st_uid)}")
            if about.st_mode & 0o077:
                os.chmod(self._root, 0o700)
        except (FileExistsError, NotADirectoryError) as error:
            raise BackendError(
                f"{self._root} cannot be the home of jobs: there is a file where a directory is needed",
                hint="set MPIJOB_HOME to a directory, or to one that can be made",
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
