"""The port of `backends.protocol` for simulated jobs; the simulation itself is in `engine`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

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
from mpijob.backends.memory.record import Record
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

P = ParamSpec("P")
R = TypeVar("R")


def _locked(
    method: Callable[Concatenate[MemoryBackend, P], R],
) -> Callable[Concatenate[MemoryBackend, P], R]:
    @functools.wraps(method)
    def call(backend: MemoryBackend, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with backend._changed:
            # Wakes streams that wait in `_advance`; after a mere read they find nothing new and wait again.
            backend._changed.notify_all()
            return method(backend, *args, **kwargs)

    return call


class MemoryBackend(CapableBackend, SupportsSecretValues, SupportsTeamTemplates):
    """Simulated jobs, without processes and without waiting; may be used by several threads.

    Iterating over a stream (`watch`, `logs`, `events`) advances the virtual time to the next event of any job.
    """

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
        return "memory"

    @property
    def namespace(self) -> str:
        return "default"

    @property
    def now(self) -> float:
        """The virtual time, in seconds since the epoch."""
        return self._engine.now

    def _find(self, ref: JobRef) -> Record:
        return find_jobs.find(self._engine, ref)

    def _view(self, record: Record) -> JobState:
        return find_jobs.view(self._engine, record)

    def schedules(self) -> MemorySchedules:
        return self._schedules

    def whoami(self) -> Identity:
        return self._who

    def devices(self) -> frozenset[str] | None:
        return self._devices

    @_locked
    def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        facts = msgspec.structs.replace(
            find_jobs.facts(self._engine, job.namespace),
            max_workers=self._max_workers,
            dependencies=find_jobs.dependencies(self._engine, job),
            **find_jobs.wait_fields(self._engine, job),
        )
        return Preflight(facts)

    @_locked
    def plan(self, job: MPIJob, found: Preflight) -> Plan:
        return planning.create_plan(job, found.facts, self._engine.new_uid())

    def server_dry_run(self, plan: Plan) -> tuple[Finding, ...]:
        return ()

    def prewarm(self) -> None:
        """Do nothing: a simulated job needs no preparation."""

    @_locked
    def submit(self, plan: Plan, who: Identity) -> JobRef:
        # A client that lost the answer submits the same plan again.
        if plan.uid in self._engine.records:
            return self._engine.records[plan.uid].state.ref
        older = find_jobs.newest(self._engine, JobRef(plan.job.namespace, plan.job.name))
        if older is not None and not older.state.phase.final:
            raise name_in_use(older.state.ref, older.state.phase)
        return self._engine.submit(plan, who)

    @_locked
    def spec(self, ref: JobRef) -> MPIJob:
        return self._find(ref).job

    @_locked
    def submitted_plan(self, ref: JobRef) -> Plan | None:
        return self._find(ref).plan

    @_locked
    def get(self, ref: JobRef) -> JobState:
        return self._view(self._find(ref))

    @_locked
    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        record = self._find(ref)
        return (*record.attempts, self._view(record))

    @_locked
    def list(self, scope: Scope) -> Page:
        matching = [
            record
            for record in find_jobs.sorted_records(self._engine, runs=scope.runs)
            if scope_filter.matches(record.state, scope)
        ]
        page, following = scope_filter.paginate(matching, scope, lambda record: record.number)
        items = tuple(msgspec.structs.replace(self._view(record), ranks=()) for record in page)
        return Page(items, following, len(matching))

    def watch(self, scope: Scope) -> Iterator[JobState]:
        known: find_jobs.KnownStates = {}
        while True:
            with self._changed:
                changes = find_jobs.find_changes(self._engine, scope, known)
            yield from changes
            self._advance()

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        with self._changed:
            record = self._find(ref)
            lines, ended = list(record.lines), find_jobs.is_log_complete(self._engine, record)
        log_pipeline = pipeline.LogPipeline(query)
        yield from log_pipeline.history(lines, query.tail) if query.follow else pipeline.select(lines, query)
        count = len(lines)
        while query.follow and not ended:
            self._advance()
            with self._changed:
                lines, ended = record.lines[count:], find_jobs.is_log_complete(self._engine, record)
            count += len(lines)
            yield from log_pipeline.live(lines, None)
        yield from log_pipeline.rest() if query.follow else ()

    def events(self, ref: JobRef, *, follow: bool = False) -> Iterator[Event]:
        with self._changed:
            record = self._find(ref)
        count = 0
        while True:
            with self._changed:
                events = record.events[count:]
                ended = record.state.phase.final or find_jobs.is_deleted(self._engine, record)
            count += len(events)
            yield from events
            if ended or not follow:
                return
            self._advance()

    @_locked
    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        return tuple(self._find(ref).samples)

    @_locked
    def mpi_profile(self, ref: JobRef) -> RankProfiles:
        return RankProfiles(find_jobs.mpi_profiles(self._engine, self._find(ref)))

    @_locked
    def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
        return find_jobs.accounts(self._engine, query)

    @_locked
    def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        self._find(ref)
        return ()

    def reconcile(self, state: JobState) -> None:
        """Do nothing: the simulation starts next attempts itself."""

    @_locked
    def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        record = self._find(ref)
        if not record.state.phase.final:
            self._engine.end(record, Phase.CANCELLED, "Cancelled", "cancelled by the user")
        return self._view(record)

    @_locked
    def suspend(self, ref: JobRef) -> JobState:
        record = self._find(ref)
        refuse_suspending(record.state)
        if record.state.phase is not Phase.SUSPENDED:
            self._engine.end(record, Phase.SUSPENDED, "Suspended", "suspended by the user")
        return self._view(record)

    @_locked
    def resume(self, ref: JobRef) -> JobState:
        record = self._find(ref)
        refuse_resuming(record.state)
        self._engine.resume(record)
        return self._view(record)

    @_locked
    def scale(self, ref: JobRef, workers: int) -> JobState:
        record = self._find(ref)
        refuse_scaling(record.state, record.job, workers)
        self._engine.scale(record, workers)
        return self._view(record)

    @_locked
    def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        for record in find_jobs.records_to_delete(self._engine, ref):
            self._engine.remove(record)

    @_locked
    def execute(self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None) -> int:
        record = self._find(ref)
        if record.state.phase is not Phase.RUNNING:
            raise wrong_phase(record.state, "commands run only in a running job")
        for kind, index, count in (
            ("worker", worker, record.job.workers),
            ("rank", rank, record.plan.world),
        ):
            if index is not None and not 0 <= index < count:
                raise NotFound(f"{record.state.ref} has no {kind} {index}: it has {count}, numbered from 0")
        return shell_sim.simulate(argv, record.plan.env).exit_code

    @_locked
    def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        record = self._find(ref)
        if record.state.phase is not Phase.RUNNING:
            raise wrong_phase(record.state, "only a running job has stacks")
        return tuple(
            find_jobs.sleeping_stack(record, rank)
            for rank in record.state.ranks
            if not ranks or rank.rank in ranks
        )

    @_locked
    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        self._find(ref)
        return ()

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        raise NotFound(f"the job has no output file {path!r}")

    def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        from mpijob.backends.secrets import read_available

        return read_available(secrets)

    @_locked
    def team_templates(self, namespace: str) -> tuple[TeamTemplate, ...]:
        return tuple(template for key, template in sorted(self._templates.items()) if key[0] == namespace)

    @_locked
    def save_team_template(self, template: TeamTemplate, *, overwrite: bool) -> None:
        key = (template.namespace, template.name)
        if key in self._templates and not overwrite:
            raise template_exists(*key)
        self._templates[key] = msgspec.structs.replace(template, changed=self._engine.now)

    @_locked
    def delete_team_template(self, namespace: str, name: str) -> None:
        if self._templates.pop((namespace, name), None) is None:
            raise no_such_template(namespace, name)

    def may_save_team_templates(self, namespace: str) -> bool:
        return True

    def history(self) -> None:
        """Return None: a deleted job leaves no record."""

    @_locked
    def pause(self, seconds: float) -> None:
        """Advance the virtual time."""
        cancellable_sleep.raise_if_cancelled()
        self._engine.advance(seconds)

    def _advance(self) -> None:
        cancellable_sleep.raise_if_cancelled()
        with self._changed:
            # Nothing is scheduled if all jobs hang or there are none: then only another thread can change anything.
            if not self._engine.advance_to_next():
                self._changed.wait(_IDLE_SECONDS)
