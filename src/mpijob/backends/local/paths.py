"""Where the local engine keeps its things: one home, closed to other users.

HOME/state.db                       jobs, events, samples
HOME/jobs/UID/work/                 the job's working directory, shared by its workers
HOME/jobs/UID/aN/logs/*.log         CRI-format logs of attempt N: launcher, worker-I, rank-R
HOME/jobs/UID/aN/workers/NAME/      one worker's own directory
HOME/mpi/FAMILY/                    MPI libraries installed by `mpijob mpi install`
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from mpijob.errors import BackendError

SCRIPTS = Path(__file__).parent / "scripts"
SHIM = str(SCRIPTS / "rank.sh")


class Home:
    """The local engine's directory; made on first use with mode 0700."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @property
    def database(self) -> Path:
        """The state database."""
        return self.root / "state.db"

    @property
    def agent(self) -> Path:
        """The start agent, executable; another version of it gets another name."""
        return self.root / f"agent-{zlib.crc32((SCRIPTS / 'agent.sh').read_bytes()):08x}.sh"

    @property
    def bell(self) -> Path:
        """The pipe on which a runner without work listens."""
        return self.root / "bell"

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
        """Make the home, or say in one sentence why that is impossible."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.root.stat().st_mode & 0o077 and self.root.stat().st_uid == os.geteuid():
                self.root.chmod(0o700)
        except OSError as error:
            raise cannot_write(self.root, str(error.strerror)) from error


def cannot_write(path: Path, why: str) -> BackendError:
    """Return the error for a place that cannot be written."""
    return BackendError(
        f"cannot write to {path}: {why}",
        hint="free some space, or set MPIJOB_HOME to a directory that you may write to",
    )
