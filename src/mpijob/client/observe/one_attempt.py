"""An engine's reads restricted to one attempt of a job: state, logs, events, usage, files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

from mpijob.backends.capabilities import SupportsMergedLogs
from mpijob.backends.streams import close
from mpijob.errors import Conflict, NotFound

if TYPE_CHECKING:
    from mpijob.backends.capabilities import C
    from mpijob.backends.protocol import Backend
    from mpijob.errors import Finding
    from mpijob.model import Artifact, Event, JobRef, JobState, LogLine, LogQuery, MPIJob, Sample


def reading(backend: Backend, attempt: int | None) -> Backend:
    """Return the engine, restricted to an attempt if one is given."""
    return backend if attempt is None else cast("Backend", _OneAttempt(backend, attempt))


def state_of(ref: JobRef, backend: Backend, attempt: int) -> JobState:
    """Return the state of an attempt; raise NotFound for one that the job does not have."""
    found = backend.attempts(ref)
    last = found[-1]
    for state in found:
        if state.attempt == attempt:
            return state
    named = f"job '{last.ref.name}'"
    if 0 < attempt < last.attempt:
        raise NotFound(
            f"no record of attempt {attempt} of {named}",
            hint="on a cluster, a recorder keeps records of attempts; the logs may still exist: mpijob logs",
        )
    raise NotFound(
        f"{named} has no attempt {attempt}: it has {last.attempt}, numbered from 1",
        hint=f"mpijob runs {last.ref.name} lists runs and attempts",
    )


class _OneAttempt:
    def __init__(self, backend: Backend, attempt: int) -> None:
        self._backend, self._attempt = backend, attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def capability(self, kind: type[C]) -> C | None:
        found = self._backend.capability(kind)
        if kind is SupportsMergedLogs and isinstance(found, SupportsMergedLogs):
            return cast("C", _MergedLogs(found, self._attempt))
        return found

    def get(self, ref: JobRef) -> JobState:
        return state_of(ref, self._backend, self._attempt)

    def spec(self, ref: JobRef) -> MPIJob:
        # All attempts have the same spec; `get` raises for an attempt that does not exist.
        return self._backend.spec(self.get(ref).ref)

    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        found = self._backend.samples(self.get(ref).ref)
        return tuple(one for one in found if one.attempt == self._attempt)

    def events(self, ref: JobRef, *, follow: bool = False) -> Iterator[Event]:
        self.get(ref)
        stream = self._backend.events(ref, follow=follow)
        try:
            for event in stream:
                if event.attempt == self._attempt:
                    yield event
        finally:
            close(stream)

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        return self._backend.logs(ref, _narrowed(query, self._attempt))

    def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return the warnings if the attempt is the current one."""
        return self._backend.warnings(ref) if self._backend.get(ref).attempt == self._attempt else ()

    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return the files of the attempt, and those without an attempt."""
        self.get(ref)
        return tuple(one for one in self._backend.artifacts(ref) if one.attempt in (0, self._attempt))


class _MergedLogs(SupportsMergedLogs):
    def __init__(self, engine: SupportsMergedLogs, attempt: int) -> None:
        self._engine, self._attempt = engine, attempt

    def merge_logs(self, ref: JobRef, query: LogQuery, target: IO[bytes], *, compress: bool = False) -> bool:
        narrowed = _narrowed(query, self._attempt)
        return self._engine.merge_logs(ref, narrowed, target, compress=compress)


def _narrowed(query: LogQuery, attempt: int) -> LogQuery:
    if query.attempt not in (None, attempt):
        raise Conflict(f"lines of attempt {query.attempt} were requested in attempt {attempt}")
    return msgspec.structs.replace(query, attempt=attempt, previous=False)
