"""The local engine as a backend: real MPI processes, without root, a container engine or a daemon.

Calls store a request, signal the process concerned, and read the new state. Modules that only some calls need are
imported in those, so that `mpijob list` loads no planner and no runner.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import msgspec

from mpijob.backends.attempts import machine_backend
from mpijob.backends.attempts.machine_backend import MachineBackend
from mpijob.backends.capabilities import SupportsArtifactStore, SupportsMergedLogs, SupportsModelRegistry
from mpijob.backends.common_errors import no_such_job, refuse_suspending
from mpijob.backends.local.planning import machine
from mpijob.backends.local.queue import list_jobs, recovery
from mpijob.backends.local.queue.runner_wakeup import RunnerWaker
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage.paths import Home
from mpijob.model import Identity, JobRef, Phase
from mpijob.settings import LOCAL

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.local.queue.store import Row
    from mpijob.backends.model_registry import Registered
    from mpijob.backends.protocol import Preflight
    from mpijob.backends.recurring.schedule_files import ScheduleFiles
    from mpijob.errors import Finding
    from mpijob.model import (
        Artifact,
        Event,
        JobState,
        LogLine,
        LogQuery,
        Model,
        MPIJob,
        Page,
        Plan,
        RankStack,
        Sample,
        Scope,
        Secret,
    )
    from mpijob.model.status.accounts import Account, AccountQuery
    from mpijob.settings import Settings


_POLL_SECONDS = 0.03


class LocalBackend(MachineBackend, SupportsArtifactStore, SupportsMergedLogs, SupportsModelRegistry):
    """Jobs on this machine; may be used by several threads."""

    name = LOCAL

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._home = Home(settings.home)
        self._waker = RunnerWaker(self._home, settings)
        # A database connection belongs to one thread.
        self._thread_local = threading.local()

    @property
    def _store(self) -> Store:
        store: Store | None = getattr(self._thread_local, "store", None)
        if store is None:
            self._thread_local.store = store = Store(self._home, allow_full_disk=True)
            self._waker.wake_for_waiting(store)
        return store

    # -- before the submit -------------------------------------------------------------------------
    def whoami(self) -> Identity:
        return Identity(user=machine_backend.login_name(), administrator=os.geteuid() == 0)

    def devices(self) -> frozenset[str] | None:
        # Jobs on this machine use them without requesting a device.
        return machine.fabrics()

    def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        from mpijob.backends.local.planning import capacity
        from mpijob.backends.protocol import Preflight

        return Preflight(capacity.facts(self._store, self._settings, job, who.user))

    def plan(self, job: MPIJob, found: Preflight) -> Plan:
        from mpijob.backends.local.planning import planner

        return planner.plan(job, found.facts, self._settings, self._home, machine_backend.current_directory())

    def server_dry_run(self, plan: Plan) -> tuple[Finding, ...]:
        return ()

    # -- submit ------------------------------------------------------------------------------------
    def prewarm(self) -> None:
        """Start a runner on an idle engine, so that it is ready when the job is submitted."""
        self._waker.prewarm(self._store)

    def submit(self, plan: Plan, who: Identity) -> JobRef:
        from mpijob.backends.local.queue import submit

        # Idempotent: a client may repeat a submit.
        ref = JobRef(plan.job.namespace, plan.job.name, plan.uid)
        if self._store.find(ref) is None:
            submit.queue_job(self._store, self._home, self._settings, plan, who)
        self._waker.wake(self._store)
        self._ensure_scheduler()
        return ref

    def _ensure_scheduler(self) -> None:
        # The scheduler of recurring jobs does not survive a restart of the machine.
        if os.path.isdir(self._home.schedules):
            self.schedules().ensure_scheduler()

    # -- read --------------------------------------------------------------------------------------
    def spec(self, ref: JobRef) -> MPIJob:
        return self._store.plan(self._row(ref).uid).job

    def submitted_plan(self, ref: JobRef) -> Plan | None:
        return self._store.plan(self._row(ref).uid)

    def get(self, ref: JobRef) -> JobState:
        row = self._row(ref)
        if row.phase is Phase.QUEUED:
            self._waker.wake_for_waiting(self._store)
        elif row.holds:
            recovery.recover(self._store)
            row = self._row(ref)
        state = list_jobs.current_state(self._store, row)
        return self._add_forecasts((state,))[0]

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        now = self.get(ref)
        return (*self._store.attempts(now.ref.uid), now)

    def list(self, scope: Scope) -> Page:
        self._waker.wake_for_expired(self._store)
        page = list_jobs.page(self._store, scope)
        return msgspec.structs.replace(page, items=self._add_forecasts(page.items))

    def _add_forecasts(self, states: tuple[JobState, ...]) -> tuple[JobState, ...]:
        # The import takes time that only queued jobs are worth.
        if not any(state.phase is Phase.QUEUED for state in states):
            return states
        from mpijob.backends.local.planning import capacity

        return capacity.add_forecasts(self._store, self._settings, states)

    def _page(self, scope: Scope) -> Page:
        return list_jobs.page(self._store, scope)

    def _await_change(self, scope: Scope) -> None:
        self._recover_and_wake()
        self._wait_for_change()

    def _recover_and_wake(self) -> None:
        # A process that watches for long may be the only one left that can notice lost and waiting jobs.
        recovery.recover(self._store)
        self._waker.wake_for_waiting(self._store)

    def _wait_for_change(self) -> None:
        """Wait until another process has written to the store, at most a second."""
        version = self._store.data_version
        deadline = time.monotonic() + 1.0
        while self._store.data_version == version and time.monotonic() < deadline:
            self.pause(_POLL_SECONDS)

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        from mpijob.backends.attempts import log_reader
        from mpijob.backends.local.logs import locations

        uid = self._row(ref).uid

        def found() -> locations.LogLocations:
            return locations.find_logs(self._store, self._home, uid, query)

        def followed() -> tuple[list[tuple[Path, int]], dict[int, int], bool]:
            self._waker.wake_for_waiting(self._store)
            return found()[:3]

        current = found()
        yield from current.missing_lines()
        if query.follow:
            yield from log_reader.follow(followed, query, self.pause)
        else:
            yield from log_reader.read_stored(current.directories, current.worker_of, query)

    def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        """Return the values of a job's secrets, after its end those that their sources have now."""
        from mpijob.backends.local.storage import job_files

        row = self._store.find(ref)
        values = {} if row is None else job_files.read_secrets(self._home, row.uid)
        return tuple(values.values()) or super().secret_values(ref, secrets)

    def merge_logs(self, ref: JobRef, query: LogQuery, target: IO[bytes], *, compress: bool = False) -> bool:
        """Write all lines of the matching sources; return False, having written nothing, if lines must be filtered."""
        from mpijob.backends.attempts import log_reader
        from mpijob.backends.local.logs import locations

        if not log_reader.reads_whole_files(query):
            return False
        found = locations.find_logs(self._store, self._home, self._row(ref).uid, query)
        if found.missing_lines():
            return False
        locations.merge(found, query, target, compress=compress)
        return True

    def events(self, ref: JobRef, *, follow: bool = False) -> Iterator[Event]:
        row = self._row(ref)
        last = 0
        while True:
            current = next(iter(self._store.rows("uid=?", row.uid)), None)
            for event in self._store.events(row.uid, last):
                last = event.sequence
                yield event
            if not follow or current is None or (current.phase.final and not current.holds):
                return
            self._recover_and_wake()
            self._wait_for_change()

    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        return self._store.samples(self._row(ref).uid)

    def _newest_attempt(self, ref: JobRef) -> tuple[Path, JobState]:
        row = self._row(ref)
        return self._home.attempt(row.uid, row.attempt), row.state

    def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
        """Return the accounts of jobs that were not deleted."""
        from mpijob.backends.local.storage import accounts

        recovery.recover(self._store)
        return accounts.find(self._store, query, time.time())

    def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        state = self._row(ref).state
        return state.findings if state.phase is Phase.RUNNING else ()

    def schedules(self) -> ScheduleFiles:
        from mpijob.backends.recurring.schedule_files import ScheduleFiles

        return ScheduleFiles(self._settings)

    def _row(self, ref: JobRef) -> Row:
        row = self._store.find(ref)
        if row is None:
            raise no_such_job(ref)
        return row

    # -- actions -----------------------------------------------------------------------------------
    def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """End the job and return its last state."""
        from mpijob.backends.local.queue import lifecycle

        ended = lifecycle.end(self._store, self._row(ref), Phase.CANCELLED, grace_seconds, self.pause)
        # For jobs that wait for this one, or for its resources.
        self._waker.wake(self._store)
        return ended

    def suspend(self, ref: JobRef) -> JobState:
        """End the job's processes and return its state; nothing is done if it is suspended already."""
        from mpijob.backends.local.queue import lifecycle

        row = self._row(ref)
        refuse_suspending(row.state)
        if row.phase is Phase.SUSPENDED:
            return row.state
        return lifecycle.end(self._store, row, Phase.SUSPENDED, None, self.pause)

    def resume(self, ref: JobRef) -> JobState:
        from mpijob.backends.local.queue import lifecycle

        state = lifecycle.resume(self._store, self._row(ref))
        self._waker.wake(self._store)
        return state

    def scale(self, ref: JobRef, workers: int) -> JobState:
        """Raise an error: jobs on one machine cannot be scaled."""
        raise machine_backend.not_scalable(self._row(ref).state.ref, workers, "on this machine")

    def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """End and remove the job and, unless `ref` has a uid, earlier ones of its name; the archive keeps records."""
        from mpijob.backends.local.queue import lifecycle

        row = self._row(ref)
        lifecycle.end(self._store, row, Phase.CANCELLED, grace_seconds, self.pause)
        lifecycle.remove(self._store, self._home, self._settings, row, alone=bool(ref.uid))
        self._waker.wake(self._store)

    def execute(self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None) -> int:
        """Run a command inside a worker with this process's terminal; return its exit status."""
        from mpijob.backends.local import exec_in_worker

        row = self._row(ref)
        index = exec_in_worker.select_worker(
            row.state, worker, rank, workers_kept=row.holds and row.phase is Phase.FAILED
        )
        socket_path = self._home.attempt(row.uid, row.attempt) / f"door-{index}"
        return exec_in_worker.run(socket_path, argv)

    def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        from mpijob.backends.local import exec_in_worker, stacks

        row = self._row(ref)
        exec_in_worker.select_worker(
            row.state, None, None, workers_kept=row.holds and row.phase is Phase.FAILED
        )
        counted = not self._store.plan(row.uid).own_launcher
        return stacks.collect(row.state, self._home.attempt(row.uid, row.attempt), ranks, counted=counted)

    def working_directory(self, ref: JobRef) -> Path:
        """Return the job's working directory, in which its files appear while it runs."""
        return self._home.work(self._row(ref).uid)

    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        from mpijob.backends.attempts import artifacts
        from mpijob.backends.local.storage import job_files

        uid = self._row(ref).uid
        return artifacts.list_written(self._home.work(uid), job_files.read_uploaded(self._home, uid))

    def register(self, ref: JobRef, model: Model | None) -> Registered:
        """Register the job's model, again if it is registered already."""
        from mpijob.backends.local.queue import submit
        from mpijob.backends.local.supervisor import model_registry

        row, settings = self._row(ref), self._settings
        plan = self._store.plan(row.uid)
        # Those of the job were removed at its end (`remove_secrets`).
        connections = submit.find_connections(plan.job, settings)
        entry = model_registry.entry(plan, self._home.work(row.uid), connections, row.state.owner, model)
        return model_registry.register(entry, settings.model_registry, settings.model_registry_token_file)

    def store(self, ref: JobRef) -> tuple[str | Finding, ...]:
        """Upload all files of the job's S3 volumes, for a job whose own upload failed."""
        from mpijob.backends.local.queue import submit
        from mpijob.backends.local.storage import s3_staging

        plan = self._store.plan(self._row(ref).uid)
        staging = s3_staging.S3Staging(plan, submit.find_connections(plan.job, self._settings))
        return tuple(staging.store(everything=True))
