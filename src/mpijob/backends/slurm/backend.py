"""The Slurm engine: the protocol of `backends.protocol` over Slurm's commands and the jobs' directories.

There is no daemon: what a job needs while it runs is done by its own scripts on its nodes, everything else
when a user asks. So jobs are visible from every machine that shares the directory, and do not depend on any
process here.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mpijob.backends.attempts import machine_backend
from mpijob.backends.attempts.machine_backend import MachineBackend
from mpijob.backends.capabilities import SupportsClose, SupportsDoctor
from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.host import Host, SshHost
from mpijob.backends.slurm.jobs.job_files import JobDirectories
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.backends.slurm.jobs.poll import Poll
from mpijob.errors import BackendError, NotFound
from mpijob.model import Identity, JobRef

if TYPE_CHECKING:
    from mpijob.backends.protocol import Preflight
    from mpijob.backends.recurring.schedule_files import ScheduleFiles
    from mpijob.backends.slurm.actions import Actions
    from mpijob.errors import Finding
    from mpijob.model import (
        Artifact,
        Event,
        JobState,
        LogLine,
        LogQuery,
        MPIJob,
        Page,
        Plan,
        RankStack,
        Sample,
        Scope,
    )
    from mpijob.model.status.accounts import Account, AccountQuery
    from mpijob.settings import Settings

_POLL_SECONDS = 0.05


class SlurmBackend(MachineBackend, SupportsClose, SupportsDoctor):
    """Jobs on a Slurm cluster; `place` is `slurm`, `slurm:PARTITION` or `slurm+ssh://[USER@]HOST[:PORT][/PARTITION]`."""

    def __init__(self, settings: Settings, place: str) -> None:
        self._settings = settings
        address, _, partition = place.removeprefix("slurm+ssh://").partition("/")
        self._address = address if place.startswith("slurm+ssh://") else ""
        self._partition = partition if self._address else place.partition(":")[2]
        self.name = f"slurm-{address.partition(':')[0].rpartition('@')[2]}" if self._address else "slurm"
        self._folder = Path(settings.home) / "slurm"
        self._submitting = False

    @cached_property
    def _host(self) -> Host:
        if self._address:
            return SshHost(self._address, self._folder / "hosts" / self._address.replace(":", "-"))
        return Host(Path(self._settings.slurm_directory or self._folder))

    @cached_property
    def _client(self) -> SlurmClient:
        return SlurmClient(self._host)

    @cached_property
    def _reader(self) -> JobReader:
        poll = Poll(self._client, self._folder / "asked" / self.name)
        return JobReader(self._client, JobDirectories(self._host), poll, self._settings.rules)

    @cached_property
    def _actions(self) -> Actions:
        # Imported late for a quick start: a list does not need it.
        from mpijob.backends.slurm.actions import Actions

        return Actions(self._reader, self.pause)

    # -- before -----------------------------------------------------------------------------------
    def whoami(self) -> Identity:
        """Return the user by the login name on the machine where Slurm's commands run."""
        if self._address:
            return Identity(user=self._host.environ().get("USER", ""))
        return Identity(user=machine_backend.login_name())

    def devices(self) -> frozenset[str] | None:
        """Return None: which fabrics the nodes have is not known from here."""

    def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        """Return the cluster's facts for this job."""
        from mpijob.backends import protocol
        from mpijob.backends.slurm import preflight

        user, most = self.whoami().user, self._settings.max_workers
        known = preflight.facts(job, self._reader, self._partition, user, fresh=fresh, most_workers=most)
        return protocol.Preflight(known)

    def plan(self, job: MPIJob, found: Preflight) -> Plan:
        """Return exactly what would be submitted, unless a submit follows with Slurm's expected start."""
        from mpijob.backends.slurm import planner

        planned = planner.plan(
            job, found.facts, self._settings, self._host, machine_backend.current_directory()
        )
        return planned if self._submitting else planner.estimated(planned, self._client)

    def server_dry_run(self, plan: Plan) -> tuple[Finding, ...]:
        """Let Slurm check the plan (sbatch --test-only); nothing is submitted."""
        from mpijob.backends.slurm import planner

        return planner.rehearsed(plan, self._client)

    def prewarm(self) -> None:
        """Note that a submit follows, so that `plan` does not ask Slurm for the expected start."""
        self._submitting = True

    def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Submit the plan; the same plan again is the same job."""
        from mpijob.backends.slurm import submit

        self._submitting = False
        return submit.submit(plan, self._reader, Path(self._settings.home))

    # -- read -------------------------------------------------------------------------------------
    def spec(self, ref: JobRef) -> MPIJob:
        """Return the job's specification; of a plain sbatch job, what its script says."""
        if (files := self._reader.ours(ref)) is not None:
            return files.plan.job
        from mpijob.backends.slurm.jobs import plain_jobs

        row = self._reader.plain(ref)
        return plain_jobs.spec(row, self._client.script(row.number))

    def submitted_plan(self, ref: JobRef) -> Plan | None:
        """Return the plan that was submitted; None for a plain sbatch job."""
        files = self._reader.ours(ref)
        return None if files is None else files.plan

    def get(self, ref: JobRef) -> JobState:
        return self._reader.get(ref)

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return the last state of each attempt, and the current state."""
        return self._reader.attempts(ref)

    def list(self, scope: Scope) -> Page:
        return self._reader.page(scope)

    def _await_change(self, scope: Scope) -> None:
        """Wait before the next poll: shorter for named jobs, of which a user waits for a change."""
        self.pause(_POLL_SECONDS if scope.names else 10 * _POLL_SECONDS)

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        from mpijob.backends.slurm.jobs import logs

        files = self._reader.ours(ref)
        if files is None or files.plan.job.script:
            yield from logs.of_script(self._reader, self.get(ref), files, query, self.pause)
        else:
            yield from logs.of_ranks(self._reader, files, query, self.pause)

    def events(self, ref: JobRef, *, follow: bool = False) -> Iterator[Event]:
        """Yield the job's events; with `follow`, until it has ended."""
        from mpijob.backends.slurm.jobs import events

        yielded, over = 0, False
        while not over:
            try:
                files, state = self._reader.ours(ref), self.get(ref)
            except NotFound:
                # Deleted while it was followed.
                if yielded:
                    return
                raise
            over = not follow or state.phase.final
            for event in events.of(files, state)[yielded:] if files else ():
                yielded += 1
                yield event
            if not over:
                self.pause(4 * _POLL_SECONDS)

    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        files = self._reader.ours(ref)
        return () if files is None else files.samples()

    def _newest_attempt(self, ref: JobRef) -> tuple[Path, JobState] | None:
        if (files := self._reader.ours(ref)) is None:
            return None
        state = self._reader.state(files, findings=False)
        return files.attempt_directory(state.attempt), state

    def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
        """Return the accounts of jobs that were not deleted, and of plain sbatch jobs."""
        from mpijob.backends.slurm.jobs import accounts

        return accounts.find(self._reader, query, time.time())

    def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return a warning for a job that cannot start unchanged."""
        from mpijob.backends.slurm.jobs import plain_jobs

        return plain_jobs.warnings(self.get(ref))

    # -- act --------------------------------------------------------------------------------------
    def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """End the job and return its last state."""
        files = self._reader.ours(ref)
        if files is not None:
            return self._actions.cancel(files, grace_seconds)
        self._client.cancel(self._reader.plain(ref).number)
        return self._reader.ended(ref)

    def suspend(self, ref: JobRef) -> JobState:
        """Requeue the job and hold it."""
        return self._actions.suspend(self._reader.files(ref))

    def resume(self, ref: JobRef) -> JobState:
        """Release a suspended job."""
        return self._actions.resume(self._reader.files(ref))

    def scale(self, ref: JobRef, workers: int) -> JobState:
        """Raise Unsupported: an allocation does not grow."""
        raise machine_backend.not_scalable(self._reader.files(ref).place.ref, workers, "on Slurm")

    def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """End the job if needed, archive and delete it; a plain sbatch job is only cancelled."""
        if self._reader.ours(ref) is None:
            self.cancel(ref)
            return
        self._actions.remove(ref, grace_seconds, self._settings, self.name)

    def execute(self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None) -> int:
        """Run a command on a worker's node, inside the job, with this terminal; return its exit code."""
        from mpijob.backends.slurm import exec_in_job

        files, state = self._reader.ours(ref), self.get(ref)
        number = files.number if files else self._reader.plain(ref).number
        directory = self._host.path(files.place.folder, "work") if files and not files.plan.job.script else ""
        index, node = exec_in_job.place_of(state, worker, rank)
        component = exec_in_job.component_of(files, index) if files else None
        return exec_in_job.run(self._host, number, node, directory, argv, component)

    def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        """Return the stacks of the ranks."""
        from mpijob.backends.slurm import exec_in_job

        files = self._reader.files(ref)
        return exec_in_job.stacks(self._host, files, self._reader.state(files, findings=False), ranks)

    # -- files ------------------------------------------------------------------------------------
    def working_directory(self, ref: JobRef) -> Path:
        """Return the working directory of a job."""
        files = self._reader.files(ref)
        job = files.plan.job
        return Path(job.code.path) if job.script and job.code.path and not self._address else files.work

    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return the files that the job left in its working directory."""
        from mpijob.backends.attempts import artifacts

        files = self._reader.files(ref)
        self._host.pull(f"{files.place.folder}/work", whole=True)
        uploaded, place = artifacts.read_uploaded(files.path / "along.json"), self.working_directory(ref)
        left = artifacts.list_written(place, uploaded) if uploaded or place == files.work else ()
        # A script may run in a directory that contains our own state.
        own_home = os.path.relpath(self._settings.home, place)
        return tuple(
            artifact
            for artifact in left
            if place == files.work or not artifact.path.startswith(f"{own_home}/")
        )

    def schedules(self) -> ScheduleFiles:
        """Return the recurring jobs of this cluster, which a process of this user on this machine starts."""
        from mpijob.backends.recurring.schedule_files import ScheduleFiles

        return ScheduleFiles(self._settings, f"slurm/schedules/{self.name}")

    def doctor(self) -> tuple[Finding, ...]:
        """Return findings about whether the cluster is ready for this user's jobs."""
        from mpijob.backends.slurm import doctor

        return doctor.report(self._client, self._reader, self.whoami().user)

    def close(self) -> None:
        """Close the connection to the login node, if there is one."""
        with contextlib.suppress(BackendError):
            if "_host" in self.__dict__:
                self._host.close()
