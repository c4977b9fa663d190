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
from typing import TYPE_CHECKING

from mpijob.backends.state_home import StateHome

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "scripts")
SHIM = os.path.join(SCRIPTS, "rank.sh")
REMOTE_SHELLS = {
    name: os.path.join(SCRIPTS, f"{name}.sh") for name in ("ssh", "pdsh")
}  # how a job's commands reach workers


class Home(StateHome):
    """The local engine's directory."""

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
