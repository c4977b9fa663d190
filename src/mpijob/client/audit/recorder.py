"""The one place where acts are told to the audit: an engine's port that writes down what goes through it.

Every face acts through the clients, and the clients act through this; so nobody writes audit lines anywhere else.
What becomes of each method is in `verbs`, and one that is not in it raises. Before an act a line says that it
was asked for, after it another with the result: whoever is killed in between leaves a request without a result, which
is told as such. A job that is refused before an engine hears of it is told by `pipeline`.

What is written never holds a value that might be a secret: of variables, arguments and files only names.

An entry that cannot be written (a full disk) does not stop the act, for deleting must be possible then; it
is said on the terminal, and the next entry tells that one is missing. With `audit = "required"` such an act is
refused before it happens.
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
_SAME_LOOK_SECONDS = 60.0
_MOST_LOOKS = 1000
_RECONCILED = ("BackingOff", "WaitingForJobs")  # where an attached command starts something


class AuditIntent(msgspec.Struct, frozen=True):
    """What a submit is: a retry, a clone, a change; of which job, and what is different."""

    verb: Verb
    details: Mapping[str, str]


_MEANING: ContextVar[AuditIntent | None] = ContextVar("meaning", default=None)


def witnessed(backend: Backend, settings: Settings) -> Backend:
    """Return the engine with its acts told to the audit; one that exists in memory alone has none."""
    if settings.audit == OFF or backend.name == "memory":
        return backend
    return cast("Backend", AuditedBackend(backend, settings))  # all else is the engine's own


def audit_directory(backend: Backend, settings: Settings) -> str:
    """Return where the audit of an engine is, on this machine."""
    return audit_path(history_directory(settings, backend.name or LOCAL))


@contextmanager
def meaning(verb: Verb, of: JobRef, old: MPIJob | None = None, new: MPIJob | None = None) -> Iterator[None]:
    """Say what the submit within means."""
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
    """Do what does not go through the port, and tell the audit: erase a record, install a runtime."""
    auditor = backend.capability(Auditor)  # none where no audit is kept
    return work() if auditor is None else auditor.act(verb, ref, work, details, resource=resource)


def tell(
    backend: Backend, verb: Verb, ref: JobRef, job: MPIJob | None = None, error: MpiJobError | None = None
) -> None:
    """Tell the audit of a refusal before the port was reached."""
    if (auditor := backend.capability(Auditor)) is not None:
        auditor.note(verb, ref, job, error)


class AuditedBackend(Auditor):
    """A port that passes everything on, and writes down acts and looks into jobs."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._required = settings.audit == REQUIRED
        self._trail = AuditLog(audit_directory(backend, settings), keep_days=check_days(settings.audit_days))
        self._looks: dict[tuple[object, ...], float] = {}
        self._reconciled: set[tuple[object, ...]] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._backend, name)
        verbs.checked(verbs.PORT, name)  # what is written down has a method here
        return found

    def capability(self, kind: type[C]) -> C | None:
        """Return an optional ability of the engine, audited."""
        if isinstance(self, kind):
            return self
        found = self._backend.capability(kind)
        return None if found is None else audited(kind, found, self)

    def history(self) -> ArchiveReader | None:
        """Return what is remembered of jobs that are gone."""
        past = self._backend.history()
        return None if past is None else cast("ArchiveReader", AuditedPast(past, self))

    def schedules(self) -> Schedules:
        """Return the recurring jobs of this place."""
        return cast("Schedules", AuditedSchedules(self._backend.schedules(), self))

    # -- acts --------------------------------------------------------------------------------------
    def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Start or queue a job."""
        meant = _meant()
        ref = JobRef(plan.job.namespace, plan.job.name, plan.uid)
        details = {**described(plan.job), **meant.details}
        return self.act(meant.verb, ref, lambda: self._backend.submit(plan, who), details, who=who)

    def reconcile(self, state: JobState) -> None:
        """Do what an engine does not do by itself: on a cluster, start a next attempt or a job that waited for others.

        An attached command asks again and again; an attempt of its job is written down once.
        """
        key = (state.ref, state.attempt, state.reason)
        if self._backend.name == LOCAL or state.reason not in _RECONCILED or key in self._reconciled:
            self._backend.reconcile(state)
            return
        self._reconciled.add(key)
        details = {"attempt": str(state.attempt), "reason": state.reason}
        self.act(Verb.RECONCILE, state.ref, lambda: self._backend.reconcile(state), details)

    def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """End a job."""
        work = lambda: self._backend.cancel(ref, grace_seconds=grace_seconds)  # noqa: E731
        return self.act(Verb.CANCEL, ref, work, ended=phase_of)

    def suspend(self, ref: JobRef) -> JobState:
        """Put a job to rest."""
        return self.act(Verb.SUSPEND, ref, lambda: self._backend.suspend(ref), ended=phase_of)

    def resume(self, ref: JobRef) -> JobState:
        """Queue a job again."""
        return self.act(Verb.RESUME, ref, lambda: self._backend.resume(ref), ended=phase_of)

    def scale(self, ref: JobRef, workers: int) -> JobState:
        """Give an elastic job another number of workers."""
        work = lambda: self._backend.scale(ref, workers)  # noqa: E731
        return self.act(Verb.SCALE, ref, work, {"workers": str(workers)}, ended=phase_of)

    def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """Remove a job."""
        work = lambda: self._backend.delete(ref, grace_seconds=grace_seconds)  # noqa: E731
        self.act(Verb.DELETE, ref, work, self._standing(ref))

    def execute(self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None) -> int:
        """Run a command inside a job."""
        where = {"worker": worker, "rank": rank}
        details = {name: str(number) for name, number in where.items() if number is not None}
        details |= {
            "program": os.path.basename(argv[0]) if argv else "",
            "arguments": str(max(0, len(argv) - 1)),
        }
        work = lambda: self._backend.execute(ref, argv, worker=worker, rank=rank)  # noqa: E731
        return self.act(Verb.EXEC, ref, work, details, ended=lambda code: {"exit-code": str(code)})

    def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        """Return where ranks stand."""
        details = {"ranks": spanned(ranks)} | ({"brought": "py-spy"} if bring else {})
        return self.act(Verb.STACKS, ref, lambda: self._backend.stacks(ref, ranks, bring=bring), details)

    # -- looks -------------------------------------------------------------------------------------
    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        """Yield the lines of a job."""
        return self._listened(ref, query, ORIGIN.get())

    def _listened(self, ref: JobRef, query: LogQuery, origin: Origin | None) -> Iterator[LogLine]:
        entry = self.look(Verb.LOGS, ref, selection(query), origin)
        stream, begun = self._backend.logs(ref, query), False
        try:
            for line in stream:
                begun = True
                yield line
        except MpiJobError as error:
            if entry is not None and not begun and not self._remembered(ref, error):
                self._add(finished(entry, error), on_disk=False)
            raise
        finally:
            close(stream)

    def _remembered(self, ref: JobRef, error: MpiJobError) -> bool:
        """Return whether the record has a job that the engine does not know: then reading that is told."""
        past = self._backend.history() if isinstance(error, NotFound) else None
        return past is not None and past.state(ref) is not None

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Copy a file that a job left."""
        self.looking(Verb.FETCH, ref, lambda: self._backend.fetch(ref, path, target), {"path": path[:200]})

    def looking(self, verb: Verb, ref: JobRef, work: Callable[[], T], details: dict[str, str]) -> T:
        """Look, and write that somebody does, or that it was refused."""
        entry = self.look(verb, ref, details, ORIGIN.get())
        try:
            return work()
        except MpiJobError as error:
            if entry is not None:
                self._add(finished(entry, error), on_disk=False)
            raise

    def look(
        self, verb: Verb, ref: JobRef, details: dict[str, str], origin: Origin | None
    ) -> AuditEvent | None:
        """Write that somebody looks; one who looks again and again at the same is told once a minute."""
        who = self._who()
        now, key = time.monotonic(), (who.user, verb, ref, *details.items())
        if now - self._looks.get(key, -_SAME_LOOK_SECONDS) < _SAME_LOOK_SECONDS:
            return None
        if len(self._looks) >= _MOST_LOOKS:  # a server lives long
            self._looks = {one: at for one, at in self._looks.items() if now - at < _SAME_LOOK_SECONDS}
        self._looks[key] = now
        entry = event(verb, ref, who, details, STARTED, origin)
        entry = msgspec.structs.replace(entry, response_status=ResponseStatus(status="Success", code=200))
        self._add(entry, on_disk=False)
        return entry

    # -- writing -----------------------------------------------------------------------------------
    def note(
        self, verb: Verb, ref: JobRef, job: MPIJob | None = None, error: MpiJobError | None = None
    ) -> None:
        """Write down what was refused before this port was reached; a submit is named by what it means."""
        extra: Mapping[str, str] = {}
        if verb is Verb.CREATE:
            verb, extra = _meant().verb, _meant().details
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
        """Write that it is asked for, do it, write how it went."""
        who = self._who() if who is None else who
        entry = event(verb, ref, who, details, RECEIVED, ORIGIN.get(), resource)
        self._add(entry, on_disk=self._required)
        try:
            result = work()
        except MpiJobError as error:
            self._add(finished(entry, error), before=False)
            raise
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
            return Identity("")  # nobody could be asked; what follows fails for the same reason

    def _standing(self, ref: JobRef) -> dict[str, str]:
        try:
            return {"phase": (self._backend.get(ref)).phase.value}
        except MpiJobError:
            return {}


def _meant() -> AuditIntent:
    return _MEANING.get() or AuditIntent(Verb.CREATE, {})


def _warn(sentence: str) -> None:
    import logging  # only when something went wrong

    logging.getLogger(__name__).warning("not recorded: %s", sentence)
