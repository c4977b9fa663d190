"""The parts of an engine that have methods of their own, with their acts and looks told to the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mpijob.client.audit import verbs
from mpijob.client.audit.entries import ORIGIN, described, selection
from mpijob.errors import NotFound
from mpijob.model import JobRef
from mpijob.model.status.audit import Verb

if TYPE_CHECKING:
    from mpijob.backends.protocol import Schedules
    from mpijob.client.audit.entries import Origin
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import LogLine, LogQuery
    from mpijob.model.spec.schedule import Recurrence
    from mpijob.model.status.audit import AuditEvent

T = TypeVar("T")


class Auditor(Protocol):
    """Whoever writes the lines (see `witness`)."""

    def act(
        self,
        verb: Verb,
        ref: JobRef,
        work: Callable[[], T],
        details: Mapping[str, str] = ...,
        *,
        resource: str = ...,
    ) -> T:
        """Do something, and write that it was asked for and how it went."""

    def look(
        self, verb: Verb, ref: JobRef, details: dict[str, str], origin: Origin | None
    ) -> AuditEvent | None:
        """Write that somebody looks."""


class AuditedSchedules:
    """Recurring jobs: who makes, changes and deletes one is written down."""

    def __init__(self, schedules: Schedules, auditor: Auditor) -> None:
        self._schedules, self._auditor = schedules, auditor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._schedules, name)
        verbs.checked(verbs.SCHEDULES, name)
        return found

    def put(self, recurrence: Recurrence) -> None:
        """Keep a schedule, new or changed."""
        schedule = recurrence.schedule
        verb = self._meant(recurrence)
        details = {"when": schedule.when, "time-zone": schedule.time_zone}
        if verb is Verb.CREATE:
            details |= described(schedule.job)
        self._acted(verb, schedule.namespace, schedule.name, lambda: self._schedules.put(recurrence), details)

    def remove(self, namespace: str, name: str) -> None:
        """Forget a schedule; jobs that it started stay."""
        self._acted(Verb.DELETE, namespace, name, lambda: self._schedules.remove(namespace, name), {})

    def _meant(self, wanted: Recurrence) -> Verb:
        """Return what keeping a schedule means, by what is kept now."""
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
    """The record: who reads a gone job's lines, and who erases a record, is written down."""

    def __init__(self, past: ArchiveReader, auditor: Auditor) -> None:
        self._past, self._auditor = past, auditor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._past, name)
        verbs.checked(verbs.PAST, name)
        return found

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        """Yield the lines of a job that is gone."""
        details = {**selection(query), "source": "record"}
        self._auditor.look(Verb.LOGS, ref, details, ORIGIN.get())
        return self._past.logs(ref, query)

    def forget(self, ref: JobRef) -> int:
        """Erase the record of a job."""
        return self._auditor.act(Verb.FORGET, ref, lambda: self._past.forget(ref))
