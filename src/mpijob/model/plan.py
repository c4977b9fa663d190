"""The plan of a job: the result of a dry run, and the only input of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob.errors import Finding
from mpijob.model.ref import JobRef
from mpijob.model.spec.amounts import Amounts
from mpijob.model.spec.dependencies import parsed
from mpijob.model.spec.job import Family, MPIJob
from mpijob.model.status.forecast import Forecast
from mpijob.model.status.state import JobState, Phase


class PlannedWorker(msgspec.Struct, frozen=True, omit_defaults=True):
    """One worker, with the ranks that the hostfile assigns to it."""

    index: int
    name: str
    slots: int
    ranks: tuple[int, ...]
    group: str = ""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All decisions about a job, before anything starts.

    `why` has a reason for each choice, `notices` name differences. `uid` is that of the job: submitting a
    plan twice creates one job. `cgroup` is the parent directory of the workers' cgroups, "" for none.
    `own_launcher` names the launcher in the command itself; `census_launch` then checks the MPI world
    before it, in a separate launch. `launcher` is the program that `mpirun` means in the job, if the PATH
    has another. `nodes`: each worker is a node with its own daemon to MPI; otherwise one daemon starts the
    ranks of all workers. `batch_script` is what a batch system gets.
    """

    job: MPIJob
    uid: str
    engine: str
    family: Family
    family_version: str
    workers: tuple[PlannedWorker, ...]
    world: int
    hostfile: str
    launch: tuple[str, ...]
    env: Mapping[str, str]
    own_launcher: str = ""
    launcher: str = ""
    nodes: bool = True
    census_launch: tuple[str, ...] = ()
    needs: Amounts = Amounts()
    free: Amounts = Amounts()
    capacity: Amounts = Amounts()
    starts_now: bool = True
    waits_for: tuple[JobRef, ...] = ()
    wait_estimate_seconds: float | None = None
    wait_range_seconds: tuple[float, float] | None = None
    wait_basis: str = ""
    volumes: tuple[Mapping[str, Any], ...] = ()
    isolation: str = ""
    cgroup: str = ""
    guarantee: str = ""
    why: tuple[str, ...] = ()
    notices: tuple[Finding, ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    batch_script: str = ""

    @property
    def entries(self) -> tuple[str, ...]:
        """The entries of `after` that are not met yet."""
        waits = {ref.name for ref in self.waits_for}
        return tuple(entry for entry in self.job.after if parsed(entry).name in waits)

    def forecast(self, now: float) -> Forecast | None:
        """When the job will start, as it is estimated now; None where it waits for other jobs, or nothing was said."""
        if self.waits_for or not self.wait_basis:
            return None
        return Forecast(
            seconds=self.wait_estimate_seconds, span=self.wait_range_seconds, basis=self.wait_basis, time=now
        )

    def first_state(self, owner: str, created: float, run: int = 0) -> JobState:
        """Return the state of the job at the moment of its submission."""
        job = self.job
        return JobState(
            ref=JobRef(job.namespace, job.name, self.uid),
            phase=Phase.QUEUED,
            engine=self.engine,
            mpi=self.mpi,
            owner=job.owner or owner,
            labels=dict(job.labels),
            description=job.description,
            image=job.image,
            queue=job.queue,
            priority=job.priority_number,
            run=run,
            attempts_allowed=job.retry.limit + 1,
            world=self.world,
            workers_wanted=job.workers,
            created=created,
            queued=created,
            estimated=self.forecast(created),
        )

    @property
    def mpi(self) -> str:
        """The MPI library with its version, as people read it."""
        return f"{self.family.value} {self.family_version}".strip()
