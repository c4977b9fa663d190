"""Reads of an engine that fall back to the history: deleted jobs are answered from the archive.

The engine is asked first, and the history only for jobs that it does not know, so that nothing of it is
loaded for existing jobs. Actions go to the engine alone: a deleted job cannot be cancelled.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from mpijob.backends.capabilities import Capability, SupportsMergedLogs
from mpijob.backends.streams import close
from mpijob.errors import NotFound

if TYPE_CHECKING:
    from mpijob.backends.capabilities import C
    from mpijob.backends.protocol import Backend
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.history.records import Record
    from mpijob.model import Event, JobRef, JobState, LogLine, LogQuery, MPIJob, Page, Sample, Scope
    from mpijob.model.status.mpi_profile import RankProfiles

T = TypeVar("T")


def with_history(backend: Backend) -> Backend:
    """Return the engine with the history as a fallback."""
    # Other methods are passed on by `__getattr__`, which mypy cannot see.
    return cast("Backend", _BackendWithHistory(backend))


class _Recalls(Capability):
    """Knows whether the history answered; only an engine with a fallback has this capability."""

    @property
    @abstractmethod
    def remembered(self) -> JobState | None:
        """The deleted job that the history answered for last."""


class _BackendWithHistory(_Recalls):
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._remembered: JobState | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    @property
    def remembered(self) -> JobState | None:
        return self._remembered

    def capability(self, kind: type[C]) -> C | None:
        if isinstance(self, kind):
            return self
        found = self._backend.capability(kind)
        if kind is SupportsMergedLogs and isinstance(found, SupportsMergedLogs):
            return cast("C", _MergedLogs(found, self.recall))
        return found

    def recall(self, ref: JobRef, error: NotFound) -> tuple[ArchiveReader, JobState]:
        """Return the history and its state of a job; raise the engine's error if it has none."""
        past = self._backend.history()
        state = None if past is None else past.state(ref)
        if past is None or state is None:
            raise error
        self._remembered = state
        return past, state

    def get(self, ref: JobRef) -> JobState:
        try:
            return self._backend.get(ref)
        except NotFound as error:
            return self.recall(ref, error)[1]

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        try:
            return self._backend.attempts(ref)
        except NotFound as error:
            past, state = self.recall(ref, error)
            return past.attempts(state.ref)

    def spec(self, ref: JobRef) -> MPIJob:
        try:
            return self._backend.spec(ref)
        except NotFound as error:
            past, state = self.recall(ref, error)
            spec = past.spec(state.ref)
            if spec is None:
                raise
            return spec

    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        try:
            return self._backend.samples(ref)
        except NotFound as error:
            past, state = self.recall(ref, error)
            return past.samples(state.ref)

    def mpi_profile(self, ref: JobRef) -> RankProfiles:
        try:
            return self._backend.mpi_profile(ref)
        except NotFound as error:
            from mpijob.history import mpi_profiles

            past, state = self.recall(ref, error)
            return mpi_profiles.read_profiles(past, state.ref)

    def events(self, ref: JobRef, *, follow: bool = False) -> Iterator[Event]:
        return self._with_fallback(
            ref, self._backend.events(ref, follow=follow), lambda past, known: past.events(known)
        )

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        from mpijob.client.audit.entries import ORIGIN

        # A context variable of the caller: the thread that reads the stream has another context.
        origin = ORIGIN.get()

        def kept(past: ArchiveReader, known: JobRef) -> Iterable[LogLine]:
            token = ORIGIN.set(origin)
            try:
                return past.logs(known, query)
            finally:
                ORIGIN.reset(token)

        return self._with_fallback(ref, self._backend.logs(ref, query), kept)

    def _with_fallback(
        self, ref: JobRef, stream: Iterator[T], kept: Callable[[ArchiveReader, JobRef], Iterable[T]]
    ) -> Iterator[T]:
        """Yield the engine's stream or, if the engine does not know the job, that of the history."""
        has_begun = False
        try:
            for one in stream:
                has_begun = True
                yield one
        except NotFound as error:
            if has_begun:
                raise
            past, state = self.recall(ref, error)
            for one in kept(past, state.ref):
                yield one
        finally:
            close(stream)


class _MergedLogs(SupportsMergedLogs):
    """Merges files of existing jobs; deleted ones have none, and their lines are read one by one."""

    def __init__(self, engine: SupportsMergedLogs, recall: Callable[[JobRef, NotFound], object]) -> None:
        self._engine, self._recall = engine, recall

    def merge_logs(self, ref: JobRef, query: LogQuery, target: IO[bytes], *, compress: bool = False) -> bool:
        try:
            return self._engine.merge_logs(ref, query, target, compress=compress)
        except NotFound as error:
            self._recall(ref, error)
            return False


def recalled_job(reads: Backend) -> JobState | None:
    """Return the deleted job that the history answered for last, if any."""
    past = reads.capability(_Recalls)
    return None if past is None else past.remembered


def deleted(backend: Backend, scope: Scope) -> Page:
    """Return one page of deleted jobs, the most recently deleted first."""
    from mpijob.model import Page

    past = backend.history()
    return Page(()) if past is None else past.list(scope)


def record(backend: Backend, ref: JobRef) -> Record:
    """Return the record of a job; raise NotFound if there is none."""
    past = backend.history()
    found = None if past is None else past.record(ref)
    if found is None:
        raise NotFound(
            f"no record of job '{ref.name}' in namespace '{ref.namespace}'",
            hint="jobs of this machine have a record after deletion; cluster jobs only if a recorder runs",
        )
    return found


def delete(backend: Backend, ref: JobRef, grace_seconds: float | None, *, forget: bool) -> None:
    """Delete a job; with `forget` its record too, even if it was deleted before."""
    try:
        backend.delete(ref, grace_seconds=grace_seconds)
    except NotFound as error:
        past = backend.history()
        if past is None or past.state(ref) is None:
            raise
        if not forget:
            raise NotFound(
                f"job '{ref.name}' is already deleted; only its record remains",
                hint=f"mpijob delete {ref.name} -n {ref.namespace} --forget erases that too",
            ) from error
    if forget and (past := backend.history()) is not None:
        past.delete_job(ref)
