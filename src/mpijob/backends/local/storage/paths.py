"""The files of the local engine, all below one home directory that only its owner may enter.

HOME/state.db                       jobs, events, samples
HOME/jobs/UID/work/                 the job's working directory, shared by its workers
HOME/jobs/UID/aN/logs/*.log         CRI-format logs of attempt N: launcher, worker-I, rank-R
HOME/jobs/UID/aN/workers/NAME/      one worker's own directory
HOME/schedules/                     recurring jobs (see `schedules`)
HOME/reserve                        disk space for a full disk (see `disk_full`)
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
# Programs by which commands of a job reach its workers.
REMOTE_SHELLS = {name: os.path.join(SCRIPTS, f"{name}.sh") for name in ("ssh", "pdsh")}


class Home(StateHome):
    """The local engine's directory."""

    @property
    def database(self) -> str:
        return os.path.join(self._root, "state.db")

    @property
    def agent(self) -> Path:
        """The installed start agent (see `submit`)."""
        # Each version has its own name, because jobs of another release may still use theirs.
        import zlib

        with open(os.path.join(SCRIPTS, "agent.sh"), "rb") as script:
            return self.root / f"agent-{zlib.crc32(script.read()):08x}.sh"

    @property
    def wakeup_pipe(self) -> Path:
        """The pipe on which a runner without work listens."""
        return self.root / "bell"

    @property
    def reserve(self) -> Path:
        return self.root / "reserve"

    @property
    def schedules(self) -> str:
        return os.path.join(self._root, "schedules")

    def job(self, uid: str) -> Path:
        return self.root / "jobs" / uid

    def work(self, uid: str) -> Path:
        """Return the working directory, which launcher and workers share."""
        return self.job(uid) / "work"

    def attempt(self, uid: str, attempt: int) -> Path:
        return self.job(uid) / f"a{attempt}"

    def logs(self, uid: str, attempt: int) -> Path:
        """Return the directory of the log files of one attempt."""
        return self.attempt(uid, attempt) / "logs"
