"""Capabilities, schedules and history of an engine, with an audit entry for each call.

`audited` wraps a capability whose methods change something or return output of a job, and raises for one that
is not in `verbs`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from mpijob.backends.capabilities import (
    C,
    Capability,
    SupportsArtifactStore,
    SupportsMergedLogs,
    SupportsModelRegistry,
    SupportsRemoteArtifacts,
    SupportsTeamTemplates,
)
from mpijob.client.audit import verbs
from mpijob.client.audit.entries import ORIGIN, described, selection
from mpijob.client.audit.verbs import Kind
from mpijob.errors import NotFound
from mpijob.model import JobRef
from mpijob.model.status.audit import Verb

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.model_registry import Registered
    from mpijob.backends.protocol import Schedules
    from mpijob.client.audit.entries import Origin
    from mpijob.errors import Finding, MpiJobError
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import Artifact, LogLine, LogQuery, Model, MPIJob
    from mpijob.model.spec.schedule import Recurrence
    from mpijob.model.status.audit import AuditEvent
    from mpijob.model.team_template import TeamTemplate

T = TypeVar("T")


class Auditor(Capability):
    """Writes the audit log (see `recorder`); only an audited engine has this capability."""

    @abstractmethod
    def act(
        self,
        verb: Verb,
        ref: JobRef,
        work: Callable[[], T],
        details: Mapping[str, str] = ...,
        *,
        resource: str = ...,
    ) -> T:
        """Do something, and record the request and the result."""

    @abstractmethod
    def record_read(
        self, verb: Verb, ref: JobRef, details: dict[str, str], origin: Origin | None
    ) -> AuditEvent | None:
        """Record a read; None if it was recorded a moment ago."""

    @abstractmethod
    def read_audited(self, verb: Verb, ref: JobRef, work: Callable[[], T], details: dict[str, str]) -> T:
        """Read something, and record the read or its refusal."""

    @abstractmethod
    def note(
        self, verb: Verb, ref: JobRef, job: MPIJob | None = None, error: MpiJobError | None = None
    ) -> None:
        """Record what did not pass the engine, such as a request that was refused before."""


class AuditedArtifactStore(SupportsArtifactStore):
    """Records uploads of a job's files."""

    def __init__(self, found: SupportsArtifactStore, auditor: Auditor) -> None:
        self._found, self._auditor = found, auditor

    def store(self, ref: JobRef) -> tuple[str | Finding, ...]:
        return self._auditor.act(Verb.STORE, ref, lambda: self._found.store(ref))


class AuditedRemoteArtifacts(SupportsRemoteArtifacts):
    """Records who lists and copies files of a job."""

    def __init__(self, found: SupportsRemoteArtifacts, auditor: Auditor) -> None:
        self._found, self._auditor = found, auditor

    def list_artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        return self._auditor.read_audited(Verb.ARTIFACTS, ref, lambda: self._found.list_artifacts(ref), {})

    def fetch_many(self, ref: JobRef, paths: Sequence[str], directory: Path) -> tuple[str, ...]:
        work = lambda: self._found.fetch_many(ref, paths, directory)  # noqa: E731
        return self._auditor.read_audited(Verb.FETCH, ref, work, {"path": ", ".join(paths)[:200] or "all"})


class AuditedMergedLogs(SupportsMergedLogs):
    """Records who reads whole logs."""

    def __init__(self, found: SupportsMergedLogs, auditor: Auditor) -> None:
        self._found, self._auditor = found, auditor

    def merge_logs(self, ref: JobRef, query: LogQuery, target: IO[bytes], *, compress: bool = False) -> bool:
        self._auditor.record_read(Verb.LOGS, ref, selection(query), ORIGIN.get())
        return self._found.merge_logs(ref, query, target, compress=compress)


class AuditedModelRegistry(SupportsModelRegistry):
    """Records who registers models."""

    def __init__(self, found: SupportsModelRegistry, auditor: Auditor) -> None:
        self._found, self._auditor = found, auditor

    def register(self, ref: JobRef, model: Model) -> Registered:
        details = {"model": model.name, "version": model.version}
        return self._auditor.act(Verb.REGISTER, ref, lambda: self._found.register(ref, model), details)


class AuditedTeamTemplates(SupportsTeamTemplates):
    """Records who saves and deletes shared templates."""

    def __init__(self, found: SupportsTeamTemplates, auditor: Auditor) -> None:
        self._found, self._auditor = found, auditor

    def team_templates(self, namespace: str) -> tuple[TeamTemplate, ...]:
        return self._found.team_templates(namespace)

    def save_team_template(self, template: TeamTemplate, *, overwrite: bool) -> None:
        ref, verb = JobRef(template.namespace, template.name), Verb.CHANGE if overwrite else Verb.CREATE
        self._auditor.act(
            verb,
            ref,
            lambda: self._found.save_team_template(template, overwrite=overwrite),
            resource="templates",
        )

    def delete_team_template(self, namespace: str, name: str) -> None:
        work = lambda: self._found.delete_team_template(namespace, name)  # noqa: E731
        self._auditor.act(Verb.DELETE, JobRef(namespace, name), work, resource="templates")

    def may_save_team_templates(self, namespace: str) -> bool:
        return self._found.may_save_team_templates(namespace)


AUDITED: dict[type[Capability], Callable[[Any, Auditor], Capability]] = {
    SupportsArtifactStore: AuditedArtifactStore,
    SupportsRemoteArtifacts: AuditedRemoteArtifacts,
    SupportsMergedLogs: AuditedMergedLogs,
    SupportsModelRegistry: AuditedModelRegistry,
    SupportsTeamTemplates: AuditedTeamTemplates,
}


def audited(kind: type[C], found: C, auditor: Auditor) -> C:
    """Return the audited form of a capability; raise NotImplementedError for one that has none but needs it."""
    if (wrapper := AUDITED.get(kind)) is not None:
        return cast(C, wrapper(found, auditor))
    for name in kind.__abstractmethods__:
        if verbs.checked(verbs.ABILITIES, name) is not Kind.READ:
            raise NotImplementedError(f"'{name}' is audited, and {kind.__name__} has no audited form")
    return found


class AuditedSchedules:
    """Records who creates, changes and deletes schedules."""

    def __init__(self, schedules: Schedules, auditor: Auditor) -> None:
        self._schedules, self._auditor = schedules, auditor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._schedules, name)
        verbs.checked(verbs.SCHEDULES, name)
        return found

    def put(self, recurrence: Recurrence) -> None:
        schedule = recurrence.schedule
        verb = self._meant(recurrence)
        details = {"when": schedule.when, "time-zone": schedule.time_zone}
        if verb is Verb.CREATE:
            details |= described(schedule.job)
        self._acted(verb, schedule.namespace, schedule.name, lambda: self._schedules.put(recurrence), details)

    def remove(self, namespace: str, name: str) -> None:
        self._acted(Verb.DELETE, namespace, name, lambda: self._schedules.remove(namespace, name), {})

    def _meant(self, wanted: Recurrence) -> Verb:
        """Return which verb storing a schedule is, compared with the stored one."""
        try:
            before = self._schedules.get(wanted.schedule.namespace, wanted.schedule.name)
        except NotFound:
            return Verb.CREATE
        if before.schedule.paused is not wanted.schedule.paused:
            return Verb.SUSPEND if wanted.schedule.paused else Verb.RESUME
        return Verb.CHANGE

    def _acted(
        self, verb: Verb, namespace: str, name: str, work: Callable[[], None], details: Mapping[str, str]
    ) -> None:
        self._auditor.act(verb, JobRef(namespace, name), work, details, resource="schedules")


class AuditedPast:
    """Records who reads logs of deleted jobs, and who erases their records."""

    def __init__(self, past: ArchiveReader, auditor: Auditor) -> None:
        self._past, self._auditor = past, auditor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._past, name)
        verbs.checked(verbs.PAST, name)
        return found

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        details = {**selection(query), "source": "record"}
        self._auditor.record_read(Verb.LOGS, ref, details, ORIGIN.get())
        return self._past.logs(ref, query)

    def delete_job(self, ref: JobRef) -> int:
        return self._auditor.act(Verb.FORGET, ref, lambda: self._past.delete_job(ref))
