"""The port of `backends.protocol` over the simulation in `engine`.

Calls may come from several threads; one lock guards them all. A stream that has nothing to say lets
virtual time leap to the next thing that is due; only when nothing is due at all (a job that hangs,
nobody running) does it really wait, for another thread to do something.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mpijob.backends import cancellable_sleep, scope_filter
from mpijob.backends.capabilities import CapableBackend, SupportsSecretValues, SupportsTeamTemplates
from mpijob.backends.common_errors import (
    name_in_use,
    no_such_template,
    refuse_resuming,
    refuse_scaling,
    refuse_suspending,
    template_exists,
    wrong_phase,
)
from mpijob.backends.memory import find_jobs, shell_sim
from mpijob.backends.memory import plan as planning
from mpijob.backends.memory.engine import Engine
from mpijob.backends.memory.scenario import Script
from mpijob.backends.memory.schedules import MemorySchedules
from mpijob.backends.protocol import Preflight
from mpijob.errors import Finding, NotFound
from mpijob.model import (
    Amounts,
    Artifact,
    Event,
    Identity,
    JobRef,
    JobState,
    LogLine,
    LogQuery,
    MPIJob,
    Page,
    Phase,
    Plan,
    Quota,
    RankStack,
    Sample,
    Scope,
    Secret,
)
from mpijob.model.status.accounts import Account, AccountQuery
from mpijob.model.status.mpi_profile import RankProfiles
from mpijob.model.team_template import TeamTemplate
from mpijob.observation.logs import pipeline

_DEFAULT_CAPACITY = Amounts(cores=1024, memory_bytes=4 * 1024**4, gpus=64)
_IDLE_SECONDS = 0.05


class MemoryBackend(CapableBackend, SupportsSecretValues, SupportsTeamTemplates):
    """Simulated jobs: same promises, no processes, no waiting."""

    def __init__(
        self,
        *,
        script: Script | None = None,
        capacity: Amounts = _DEFAULT_CAPACITY,
        quotas: Mapping[str, Quota] | None = None,
        who: Identity | None = None,
        max_workers: int = 100,
        devices: frozenset[str] | None = frozenset(),
    ) -> None:
        self._engine = Engine(capacity, quotas or {}, script or Script())
        self._who = who or Identity("me")
        self._max_workers = max_workers
        self._templates: dict[tuple[str, str], TeamTemplate] = {}
        self._devices = devices
        self._changed = threading.Condition()
        self._schedules = MemorySchedules()

    @property
    def name(self) -> str:
        """What users call it."""
        return "memory"

    @property
    def namespace(self) -> str:
        """Where jobs go when nobody says otherwise."""
        return "default"

    @property
    def now(self) -> float:
        """The virtual time, in seconds since the epoch."""
        return self._engine.now

    def schedules(self) -> MemorySchedules:
        """Return the recurring jobs that were made here; nobody keeps the time."""
        return self._schedules

    def whoami(self) -> Identity:
        """Return the user that the backend was made for."""
        return self._who

    def devices(self) -> frozenset[str] | None:
        """Return the devices that the test or demo says there are."""
        return self._devices

    def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        """Return what admission needs to judge this job."""
        with self._changed:
            known = find_jobs.facts(self._engine, job.namespace)
            found = find_jobs.dependencies(self._engine, job)
            known = msgspec.structs.replace(
                known, dependencies=found, **find_jobs.wait_fields(self._engine, job)
            )
        return Preflight(msgspec.structs.replace(known, max_workers=self._max_workers))

    def plan(self, job: MPIJob, found: Preflight) -> Plan:
        """Return what would be played; start nothing."""
        with self._changed:
            return planning.create_plan(job, found.facts, self._engine.new_uid())

    def server_dry_run(self, plan: Plan) -> tuple[Finding, ...]:
        """Return nothing: there is no server here."""
        return ()

    def prewarm(self) -> None:
        """Do nothing: a played job needs no preparation."""

    def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Take a job in, unless one of that name has not ended; a plan handed in twice is one job."""
        with self._changed:
            if plan.uid in self._engine.records:
                return self._engine.records[plan.uid].state.ref
            older = find_jobs.newest(self._engine, JobRef(plan.job.namespace, plan.job.name))
            if older is not None and not older.state.phase.final:
                raise name_in_use(older.state.ref, older.state.phase)
            self._changed.notify_all()
            return self._engine.submit(plan, who)

    def spec(self, ref: JobRef) -> MPIJob:
        """Return what was asked for."""
        with self._changed:
            return find_jobs.find(self._engine, ref).job

    def submitted_plan(self, ref: JobRef) -> Plan | None:
        """Return the plan that was submitted."""
        with self._changed:
            return find_jobs.find(self._engine, ref).plan

    def get(self, ref: JobRef) -> JobState:
        """Return the job's present state."""
        with self._changed:
            return find_jobs.view(self._engine, find_jobs.find(self._engine, ref))

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return the job as each of its attempts ended, and as it is now."""
        with self._changed:
            record = find_jobs.find(self._engine, ref)
            return (*record.attempts, find_jobs.view(self._engine, record))

    def list(self, scope: Scope) -> Page:
        """Return one page of the newest job of each name, newest first; of all jobs where that is asked for."""
        with self._changed:
            chosen = [
                record
                for record in find_jobs.sorted_records(self._engine, runs=scope.runs)
                if scope_filter.matches(record.state, scope)
            ]
            page, following = scope_filter.paginate(chosen, scope, lambda record: record.number)
            items = tuple(
                msgspec.structs.replace(find_jobs.view(self._engine, record), ranks=()) for record in page
            )
            return Page(items, following, len(chosen))

    def watch(self, scope: Scope) -> Iterator[JobState]:
        """Yield every job's state once, then each change; a deleted job is told once as Deleting."""
        seen: find_jobs.Seen = {}
        while True:
            with self._changed:
                fresh = find_jobs.find_changes(self._engine, scope, seen)
            yield from fresh
            self._advance()

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        """Yield the lines in time order; with follow, until the job has ended."""
        with self._changed:
            record = find_jobs.find(self._engine, ref)
            said, ended = list(record.lines), find_jobs.is_log_complete(self._engine, record)
        wanted = pipeline.LogPipeline(query)
        for line in wanted.history(said, query.tail) if query.follow else pipeline.select(said, query):
            yield line
        at = len(said)
        while query.follow and not ended:
            self._advance()
            with self._changed:
                fresh, ended = record.lines[at:], find_jobs.is_log_complete(self._engine, record)
            at += len(fresh)
            for line in wanted.live(fresh, None):
                yield line
        for line in wanted.rest() if query.follow else ():
            yield line

    def events(self, ref: JobRef, *, follow: bool = False) -> Iterator[Event]:
        """Yield what happened, in order; with follow, until the job has ended."""
        with self._changed:
            record = find_jobs.find(self._engine, ref)
        at, more = 0, True
        while more:
            with self._changed:
                fresh, ended = (
                    record.events[at:],
                    record.state.phase.final or find_jobs.is_deleted(self._engine, record),
                )
            at += len(fresh)
            yield from fresh
            more = follow and not ended
            if more:
                self._advance()

    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        """Return the usage invented so far."""
        with self._changed:
            return tuple(find_jobs.find(self._engine, ref).samples)

    def mpi_profile(self, ref: JobRef) -> RankProfiles:
        """Return an invented profile of the ranks that a running or ended job had."""
        with self._changed:
            return RankProfiles(find_jobs.mpi_profiles(self._engine, find_jobs.find(self._engine, ref)))

    def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
        """Return the accounts of all jobs; nothing is recorded anywhere else."""
        with self._changed:
            return find_jobs.accounts(self._engine, query)

    def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return nothing: a played job worries nobody."""
        with self._changed:
            find_jobs.find(self._engine, ref)
        return ()

    def reconcile(self, state: JobState) -> None:
        """This engine sees to everything by itself."""

    def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """End the job at once; one that has ended already stays as it is."""
        with self._changed:
            record = find_jobs.find(self._engine, ref)
            if not record.state.phase.final:
                self._engine.end(record, Phase.CANCELLED, "Cancelled", "cancelled by the user")
                self._changed.notify_all()
            return find_jobs.view(self._engine, record)

    def suspend(self, ref: JobRef) -> JobState:
        """Free what the job holds and keep it to be resumed."""
        with self._changed:
            record = find_jobs.find(self._engine, ref)
            refuse_suspending(record.state)
            if record.state.phase is not Phase.SUSPENDED:
                self._engine.end(record, Phase.SUSPENDED, "Suspended", "suspended by the user")
                self._changed.notify_all()
            return find_jobs.view(self._engine, record)

    def resume(self, ref: JobRef) -> JobState:
        """Queue a suspended job again, as its next attempt."""
        with self._changed:
            record = find_jobs.find(self._engine, ref)
            refuse_resuming(record.state)
            self._engine.resume(record)
            self._changed.notify_all()
            return find_jobs.view(self._engine, record)

    def scale(self, ref: JobRef, workers: int) -> JobState:
        """Give an elastic job another number of workers."""
        with self._changed:
            record = find_jobs.find(self._engine, ref)
            refuse_scaling(record.state, record.job, workers)
            self._engine.scale(record, workers)
            self._changed.notify_all()
            return find_jobs.view(self._engine, record)

    def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """Remove the job, and with the newest of a name the earlier ones too."""
        with self._changed:
            for record in find_jobs.records_to_delete(self._engine, ref):
                self._engine.remove(record)
            self._changed.notify_all()

    def execute(self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None) -> int:
        """Return the exit code that the command would have in a running job; nothing is run."""
        with self._changed:
            record = find_jobs.find(self._engine, ref)
            if record.state.phase is not Phase.RUNNING:
                raise wrong_phase(record.state, "commands run only in a running job")
            for kind, index, count in (
                ("worker", worker, record.job.workers),
                ("rank", rank, record.plan.world),
            ):
                if index is not None and not 0 <= index < count:
                    raise NotFound(
                        f"{record.state.ref} has no {kind} {index}: it has {count}, numbered from 0"
                    )
            return shell_sim.simulate(argv, record.plan.env).exit_code

    def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        """Return that each rank sleeps: a played one does nothing else."""
        with self._changed:
            record = find_jobs.find(self._engine, ref)
            if record.state.phase is not Phase.RUNNING:
                raise wrong_phase(record.state, "only a running job has stacks")
            wanted = [one for one in record.state.ranks if not ranks or one.rank in ranks]
            return tuple(find_jobs.sleeping_stack(record, one) for one in wanted)

    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return nothing: a played job writes no files."""
        with self._changed:
            find_jobs.find(self._engine, ref)
        return ()

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Refuse: there are no files."""
        raise NotFound(f"the job has no output file {path!r}")

    def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        """Return the values of a job's secrets, by their sources on this machine."""
        from mpijob.backends.secrets import read_available

        return read_available(secrets)

    def team_templates(self, namespace: str) -> tuple[TeamTemplate, ...]:
        """Return the templates that a namespace shares."""
        with self._changed:
            return tuple(one for key, one in sorted(self._templates.items()) if key[0] == namespace)

    def save_team_template(self, template: TeamTemplate, *, overwrite: bool) -> None:
        """Keep a template, as long as the engine is there."""
        with self._changed:
            key = (template.namespace, template.name)
            if key in self._templates and not overwrite:
                raise template_exists(*key)
            self._templates[key] = msgspec.structs.replace(template, changed=self._engine.now)

    def delete_team_template(self, namespace: str, name: str) -> None:
        """Remove a template."""
        with self._changed:
            if self._templates.pop((namespace, name), None) is None:
                raise no_such_template(namespace, name)

    def may_save_team_templates(self, namespace: str) -> bool:
        """Say that everybody may."""
        return True

    def history(self) -> None:
        """What is deleted here is gone."""

    def pause(self, seconds: float) -> None:
        """Let virtual time pass."""
        cancellable_sleep.raise_if_cancelled()
        with self._changed:
            self._engine.advance(seconds)
            self._changed.notify_all()

    def _advance(self) -> None:
        cancellable_sleep.raise_if_cancelled()
        with self._changed:
            if not self._engine.advance_to_next():
                self._changed.wait(_IDLE_SECONDS)
