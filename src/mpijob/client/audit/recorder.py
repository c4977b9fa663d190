"""The audit: a wrapper of an engine that records what is done through it.

Every interface acts through the clients, and the clients act through this wrapper, so audit entries are
written nowhere else. `verbs` lists how each method is audited. An action has two entries: the request before
it and the result after it, so that a process that is killed in between leaves a request without a result. A
job that is refused before it reaches an engine is recorded by `pipeline`.

Entries contain no values that might be secrets: of variables, arguments and files only names.

An entry that cannot be written (for example on a full disk) does not prevent the action, because deleting
must work then. A warning is logged, and the next entry shows that one is missing. With `audit = "required"`
the action is refused before it happens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from mpijob.backends.streams import close
from mpijob.client.audit import verbs
from mpijob.client.audit.capabilities import AuditedPast, AuditedSchedules, Auditor, audited
from mpijob.client.audit.entries import (
    ORIGIN,
    Origin,
    broken,
    changed,
    described,
    event,
    finished,
    phase_of,
    selection,
    spanned,
)
from mpijob.errors import BackendError, MpiJobError, NotFound
from mpijob.history.audit.audit_log import AuditLog, audit_path
from mpijob.history.audit.retention import check_days
from mpijob.model import Identity, JobRef
from mpijob.model.status.audit import COMPLETE, RECEIVED, STARTED, AuditEvent, ResponseStatus, Verb
from mpijob.settings import LOCAL, Settings, history_directory

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.capabilities import C
    from mpijob.backends.protocol import Backend, Schedules
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import JobState, LogLine, LogQuery, MPIJob, Plan, RankStack

T = TypeVar("T")
OFF, ON, REQUIRED = "off", "on", "required"
# Repeated reads of the same output within this time have one entry.
_SAME_READ_SECONDS = 60.0
_MOST_RECENT_READS = 1000
# Reasons for which `reconcile` starts something on a cluster.
_RECONCILED = ("BackingOff", "WaitingForJobs")


class AuditIntent(msgspec.Struct, frozen=True):
    """What a submit means: a retry, a clone or a change; of which job, and what is different."""

    verb: Verb
    details: Mapping[str, str]


_MEANING: ContextVar[AuditIntent | None] = ContextVar("meaning", default=None)


def with_audit(backend: Backend, settings: Settings) -> Backend:
    """Return the engine with audit; the engine in memory has none."""
    if settings.audit == OFF or backend.name == "memory":
        return backend
    # Other methods are passed on by `__getattr__`, which mypy cannot see.
    return cast("Backend", AuditedBackend(backend, settings))


def audit_directory(backend: Backend, settings: Settings) -> str:
    return audit_path(history_directory(settings, backend.name or LOCAL))


@contextmanager
def meaning(verb: Verb, of: JobRef, old: MPIJob | None = None, new: MPIJob | None = None) -> Iterator[None]:
    """Set the meaning of the submit within the context: it is recorded as a retry, a clone or a change."""
    details = {"of": of.name}
    if old is not None and new is not None and (different := changed(old, new)):
        details["changed"] = different
    token = _MEANING.set(AuditIntent(verb, details))
    try:
        yield
    finally:
        _MEANING.reset(token)


def act(
    backend: Backend,
    verb: Verb,
    ref: JobRef,
    work: Callable[[], T],
    details: Mapping[str, str] = {},
    *,
    resource: str = "jobs",
) -> T:
    """Do and record something that is no method of an engine: erase a record, install a runtime."""
    # None if the engine is not audited.
    auditor = backend.capability(Auditor)
    return work() if auditor is None else auditor.act(verb, ref, work, details, resource=resource)


def record_event(
    backend: Backend, verb: Verb, ref: JobRef, job: MPIJob | None = None, error: MpiJobError | None = None
) -> None:
    """Record what did not pass the engine: a request that was refused before it, a record that was erased."""
    if (auditor := backend.capability(Auditor)) is not None:
        auditor.note(verb, ref, job, error)


class AuditedBackend(Auditor):
    """An engine that passes all calls on, and records actions and reads of output."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._required = settings.audit == REQUIRED
        self._trail = AuditLog(audit_directory(backend, settings), keep_days=check_days(settings.audit_days))
        self._recent_reads: dict[tuple[object, ...], float] = {}
        self._reconciled: set[tuple[object, ...]] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._backend, name)
        # Audited methods are defined in this class, so only READ ones arrive here.
        verbs.checked(verbs.PORT, name)
        return found

    def capability(self, kind: type[C]) -> C | None:
        if isinstance(self, kind):
            return self
        found = self._backend.capability(kind)
        return None if found is None else audited(kind, found, self)

    def history(self) -> ArchiveReader | None:
        past = self._backend.history()
        return None if past is None else cast("ArchiveReader", AuditedPast(past, self))

    def schedules(self) -> Schedules:
        return cast("Schedules", AuditedSchedules(self._backend.schedules(), self))

    # -- actions -----------------------------------------------------------------------------------
    def submit(self, plan: Plan, who: Identity) -> JobRef:
        intent = _intent()
        ref = JobRef(plan.job.namespace, plan.job.name, plan.uid)
        details = {**described(plan.job), **intent.details}
        return self.act(intent.verb, ref, lambda: self._backend.submit(plan, who), details, who=who)

    def reconcile(self, state: JobState) -> None:
        # An attached command reconciles again and again; each attempt is recorded once.
        key = (state.ref, state.attempt, state.reason)
        if self._backend.name == LOCAL or state.reason not in _RECONCILED or key in self._reconciled:
            self._backend.reconcile(state)
            return
        self._reconciled.add(key)
        details = {"attempt": str(state.attempt), "reason": state.reason}
        self.act(Verb.RECONCILE, state.ref, lambda: self._backend.reconcile(state), details)

    def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        work = lambda: self._backend.cancel(ref, grace_seconds=grace_seconds)  # noqa: E731
        return self.act(Verb.CANCEL, ref, work, ended=phase_of)

    def suspend(self, ref: JobRef) -> JobState:
        return self.act(Verb.SUSPEND, ref, lambda: self._backend.suspend(ref), ended=phase_of)

    def resume(self, ref: JobRef) -> JobState:
        return self.act(Verb.RESUME, ref, lambda: self._backend.resume(ref), ended=phase_of)

    def scale(self, ref: JobRef, workers: int) -> JobState:
        work = lambda: self._backend.scale(ref, workers)  # noqa: E731
        return self.act(Verb.SCALE, ref, work, {"workers": str(workers)}, ended=phase_of)

    def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        work = lambda: self._backend.delete(ref, grace_seconds=grace_seconds)  # noqa: E731
        self.act(Verb.DELETE, ref, work, self._phase(ref))

    def execute(self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None) -> int:
        where = {"worker": worker, "rank": rank}
        details = {name: str(number) for name, number in where.items() if number is not None}
        details |= {
            # Arguments may contain secrets: only their number is recorded.
            "program": os.path.basename(argv[0]) if argv else "",
            "arguments": str(max(0, len(argv) - 1)),
        }
        work = lambda: self._backend.execute(ref, argv, worker=worker, rank=rank)  # noqa: E731
        return self.act(Verb.EXEC, ref, work, details, ended=lambda code: {"exit-code": str(code)})

    def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        details = {"ranks": spanned(ranks)} | ({"brought": "py-spy"} if bring else {})
        return self.act(Verb.STACKS, ref, lambda: self._backend.stacks(ref, ranks, bring=bring), details)

    # -- reads of output ---------------------------------------------------------------------------
    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        # The origin is read here: a generator runs later, perhaps in a thread with another context.
        return self._read_logs(ref, query, ORIGIN.get())

    def _read_logs(self, ref: JobRef, query: LogQuery, origin: Origin | None) -> Iterator[LogLine]:
        entry = self.record_read(Verb.LOGS, ref, selection(query), origin)
        stream, begun = self._backend.logs(ref, query), False
        try:
            for line in stream:
                begun = True
                yield line
        except MpiJobError as error:
            if entry is not None and not begun and not self._in_history(ref, error):
                self._add(finished(entry, error), on_disk=False)
            raise
        finally:
            close(stream)

    def _in_history(self, ref: JobRef, error: MpiJobError) -> bool:
        """Return whether the history has a job that the engine does not know: then its own entry is written."""
        past = self._backend.history() if isinstance(error, NotFound) else None
        return past is not None and past.state(ref) is not None

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        self.read_audited(
            Verb.FETCH, ref, lambda: self._backend.fetch(ref, path, target), {"path": path[:200]}
        )

    def read_audited(self, verb: Verb, ref: JobRef, work: Callable[[], T], details: dict[str, str]) -> T:
        """Read, and record the read or its refusal."""
        entry = self.record_read(verb, ref, details, ORIGIN.get())
        try:
            return work()
        except MpiJobError as error:
            if entry is not None:
                self._add(finished(entry, error), on_disk=False)
            raise

    def record_read(
        self, verb: Verb, ref: JobRef, details: dict[str, str], origin: Origin | None
    ) -> AuditEvent | None:
        """Record a read; None if the same user read the same less than a minute ago."""
        who = self._who()
        now, key = time.monotonic(), (who.user, verb, ref, *details.items())
        if now - self._recent_reads.get(key, -_SAME_READ_SECONDS) < _SAME_READ_SECONDS:
            return None
        # Servers run for months: expired entries are dropped.
        if len(self._recent_reads) >= _MOST_RECENT_READS:
            self._recent_reads = {
                one: at for one, at in self._recent_reads.items() if now - at < _SAME_READ_SECONDS
            }
        self._recent_reads[key] = now
        entry = event(verb, ref, who, details, STARTED, origin)
        entry = msgspec.structs.replace(entry, response_status=ResponseStatus(status="Success", code=200))
        self._add(entry, on_disk=False)
        return entry

    # -- writing -----------------------------------------------------------------------------------
    def note(
        self, verb: Verb, ref: JobRef, job: MPIJob | None = None, error: MpiJobError | None = None
    ) -> None:
        """Record what did not pass this engine; a refused submit has the verb of its meaning."""
        extra: Mapping[str, str] = {}
        if verb is Verb.CREATE:
            verb, extra = _intent().verb, _intent().details
        details = {**(described(job) if job is not None else {}), **extra}
        entry = event(verb, ref, self._who(), details, COMPLETE, ORIGIN.get())
        self._add(finished(entry, error, job))

    def act(
        self,
        verb: Verb,
        ref: JobRef,
        work: Callable[[], T],
        details: Mapping[str, str] = {},
        *,
        who: Identity | None = None,
        ended: Callable[[T], dict[str, str]] = lambda _: {},
        resource: str = "jobs",
    ) -> T:
        """Record the request, do it, and record the result."""
        who = self._who() if who is None else who
        entry = event(verb, ref, who, details, RECEIVED, ORIGIN.get(), resource)
        self._add(entry, on_disk=self._required)
        try:
            result = work()
        except MpiJobError as error:
            self._add(finished(entry, error), before=False)
            raise
        # Also for an interrupt: every request gets a result if the process lives.
        except BaseException as error:
            self._add(finished(entry, broken(error)), before=False)
            raise
        self._add(finished(entry, more=ended(result)), before=False)
        return result

    def _add(self, entry: AuditEvent, *, on_disk: bool = True, before: bool = True) -> None:
        try:
            self._trail.add(entry, on_disk=on_disk)
        except BackendError as error:
            if self._required and before:
                raise BackendError(
                    f"{error.message}; the action is refused because audit logging is required",
                    hint=error.hint,
                ) from error
            _warn(f"{entry.verb} {entry.object_ref.name if entry.object_ref else ''}: {error.message}")

    def _who(self) -> Identity:
        try:
            return self._backend.whoami()
        except MpiJobError:
            # The user is unknown; the action itself fails for the same reason.
            return Identity("")

    def _phase(self, ref: JobRef) -> dict[str, str]:
        try:
            return {"phase": (self._backend.get(ref)).phase.value}
        except MpiJobError:
            return {}


def _intent() -> AuditIntent:
    return _MEANING.get() or AuditIntent(Verb.CREATE, {})


def _warn(sentence: str) -> None:
    # Imported here because it is needed for failures only.
    import logging

    logging.getLogger(__name__).warning("not recorded: %s", sentence)
