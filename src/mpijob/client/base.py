"""The base of the client: settings, engine, namespace, and how arguments become values."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, cast

import msgspec

from mpijob.client.job import Job
from mpijob.errors import InvalidJob
from mpijob.model import JobRef, LauncherState, Level, LogQuery, Phase, Role, Scope
from mpijob.settings import CLUSTER, LOCAL, SLURM, UNSET_NAMESPACE, Settings, is_slurm, load, namespace_at

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.client.client import Client
    from mpijob.model import JobState, MPIJob
    from mpijob.settings import Settings

Target = str | JobRef
_UID_LENGTHS = (16, 32, 36)
Format = Literal["yaml", "json"]


class BaseClient:
    """Settings, engine and default namespace of a client.

    A job that names no namespace of its own goes to the client's.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = load() if settings is None else settings
        self.owns_backend = backend is None
        self.backend: Backend = open_backend(self.settings) if backend is None else backend
        self.namespace = namespace or namespace_at(self.settings, self.backend.namespace)

    @cached_property
    def _audited(self) -> Backend:
        """The engine for what is audited: changes, and reads of a job's output."""
        # Imported here because `list` must start quickly.
        from mpijob.client.audit.recorder import with_audit

        return with_audit(self.backend, self.settings)

    @cached_property
    def _records(self) -> Backend:
        """The engine for reads; the history answers for deleted jobs."""
        from mpijob.client.history.fallback import with_history

        return with_history(self._audited)

    def _job(self, ref: JobRef) -> Job:
        return Job(cast("Client", self), self.backend.get(ref))

    def ref(self, target: Target, namespace: str | None = None) -> JobRef:
        """Return the address of a job given by its name, as `NAME@RUN`, by its uid, or by its address already.

        The engine is asked only for what is no plain name; raise NotFound where there is no such run.
        """
        if isinstance(target, JobRef):
            return target
        where = namespace or self.namespace
        # The engine is asked only if the target cannot be a plain name: most calls cost no request.
        if "@" not in target and len(target) not in _UID_LENGTHS:
            return JobRef(where, target)
        # Imported here because `list` must start quickly.
        from mpijob.client import runs

        if runs.is_plain(target):
            return JobRef(where, target)
        return runs.resolved(target, where, self._records)

    def _reads(self, attempt: int | None) -> Backend:
        """Return the engine for reads: of the whole job, or of one attempt."""
        if attempt is None:
            return self._records
        from mpijob.client.observe import one_attempt

        return one_attempt.reading(self._records, attempt)

    def localized(self, job: MPIJob) -> MPIJob:
        """Return the job in this client's namespace, unless it names another one itself."""
        if job.namespace == UNSET_NAMESPACE and self.namespace != UNSET_NAMESPACE:
            return job.replace(namespace=self.namespace)
        return job

    def _sound(self, job: MPIJob) -> MPIJob:
        """Return the job in this client's namespace; raise InvalidJob if it contradicts itself."""
        from mpijob.client.submit import pipeline

        local = self.localized(job)
        pipeline.refuse_unsound(local, max_workers=self.settings.max_workers)
        return local

    def scope(self, *, names: Iterable[str] = (), **chosen: Unpack[ListOptions]) -> Scope:
        """Return the filters as a Scope."""
        return Scope(
            namespace="" if chosen.get("all_namespaces") else chosen.get("namespace") or self.namespace,
            names=tuple(names),
            phases=tuple(Phase(phase).value for phase in chosen.get("phases", ())),
            selector=chosen.get("selector", ""),
            owner=chosen.get("owner", ""),
            queue=chosen.get("queue", ""),
            text=chosen.get("text", ""),
            kinds=tuple(chosen.get("kinds", ())),
            since=chosen.get("since"),
            until=chosen.get("until"),
            limit=chosen.get("limit", 100),
            after=chosen.get("after", ""),
            runs=chosen.get("runs", False),
        )


class Choice(TypedDict, total=False):
    """Filters of `jobs` and `watch`, as keywords; see `Scope`."""

    namespace: str | None
    all_namespaces: bool
    selector: str
    phases: Iterable[Phase | str]
    owner: str
    queue: str
    text: str
    kinds: Iterable[str]
    since: float | None
    until: float | None
    runs: bool


class ListOptions(Choice, total=False):
    """Filters of `list` and its page, as keywords."""

    limit: int
    after: str


class LogOptions(TypedDict, total=False):
    """Filters of `logs`, as keywords; see `LogQuery`."""

    follow: bool
    roles: Iterable[Role | str]
    workers: Iterable[int] | int
    ranks: Iterable[int] | int
    steps: Iterable[int] | int
    since: float | None
    until: float | None
    tail: int | None
    regex: str
    attempt: int | None
    previous: bool
    streams: Iterable[str]
    level: Level | str | None
    before: int
    after: int
    find: str
    tidy: bool
    fold: bool


def _numbers(wanted: Iterable[int] | int) -> tuple[int, ...]:
    return (wanted,) if isinstance(wanted, int) else tuple(wanted)


def log_query(**options: Unpack[LogOptions]) -> LogQuery:
    level = options.get("level")
    return LogQuery(
        follow=options.get("follow", False),
        roles=tuple(Role(role) for role in options.get("roles", ())),
        workers=_numbers(options.get("workers", ())),
        ranks=_numbers(options.get("ranks", ())),
        steps=_numbers(options.get("steps", ())),
        since=options.get("since"),
        until=options.get("until"),
        tail=options.get("tail"),
        regex=options.get("regex", ""),
        attempt=options.get("attempt"),
        previous=options.get("previous", False),
        streams=tuple(options.get("streams", ())),
        level=Level(level) if level else None,
        before=options.get("before", 0),
        after=options.get("after", 0),
        find=options.get("find", ""),
        tidy=options.get("tidy", False),
        fold=options.get("fold", False),
    )


class JobStatus(msgspec.Struct, frozen=True):
    """A short status: phase, launcher, and the number of ready workers.

    `launcher_ready` means that the launcher has reached every worker and has not ended.
    """

    name: str
    phase: Phase
    launcher_ready: bool
    workers_ready: int
    workers: int
    message: str = ""
    launcher: LauncherState | None = None

    @classmethod
    def of(cls, state: JobState) -> JobStatus:
        ready = sum(worker.phase is Phase.RUNNING for worker in state.workers)
        own = state.launcher
        return cls(
            state.ref.name,
            state.phase,
            own is not None and own.is_ready,
            ready,
            state.workers_wanted,
            state.message,
            own,
        )


ENGINES = (LOCAL, CLUSTER, SLURM, "memory")


def open_backend(settings: Settings) -> Backend:
    """Return the engine of the settings; raise InvalidJob for an unknown one."""
    # Engines are imported only when they are chosen: each brings libraries of its own.
    if settings.engine in ("", LOCAL):
        from mpijob.backends.local import LocalBackend

        return LocalBackend(settings)
    if settings.engine == CLUSTER:
        from mpijob.backends.kubernetes.backend import KubernetesBackend

        return KubernetesBackend(settings)
    if is_slurm(settings.engine):
        from mpijob.backends.slurm.backend import SlurmBackend

        return SlurmBackend(settings, settings.engine)
    if settings.engine == "memory":
        from mpijob.backends.memory import MemoryBackend

        return MemoryBackend()
    from mpijob.model.spec.enums import choice_hint

    raise InvalidJob(
        f"there is no engine '{settings.engine}'",
        hint=f"set MPIJOB_ENGINE or `engine` in the settings file; {choice_hint(settings.engine, ENGINES)}",
    )
