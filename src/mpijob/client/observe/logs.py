"""Read a job's log, and refuse a query for a rank, worker or attempt that it does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mpijob.backends.capabilities import SupportsSecretValues
from mpijob.backends.streams import close
from mpijob.errors import NotFound
from mpijob.model import LogQuery
from mpijob.observation.health import stacks as grouping

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef, JobState, LogLine, StackReport


def lines(ref: JobRef, backend: Backend, query: LogQuery) -> Iterator[LogLine]:
    """Yield the matching lines; raise NotFound if the job cannot have such."""
    stream = backend.logs(ref, resolved(ref, backend, query))
    try:
        yield from stream
    finally:
        close(stream)


def resolved(ref: JobRef, backend: Backend, query: LogQuery) -> LogQuery:
    """Return the query with `previous` replaced by the attempt; raise NotFound if the job cannot have such lines."""
    if not (query.ranks or query.steps or query.workers or query.attempt is not None or query.previous):
        return query
    state = backend.get(ref)
    if query.previous:
        if state.attempt < 2:
            before = (
                f"; the run before it: mpijob logs {state.ref.name}@{state.run - 1}" if state.run > 1 else ""
            )
            raise NotFound(
                f"job '{state.ref.name}' has no previous attempt: this is its first",
                hint=f"mpijob logs {state.ref.name} shows it{before}",
            )
        query = replace(query, previous=False, attempt=state.attempt - 1)
    refuse_absent(state, query)
    return query


def refuse_absent(state: JobState, query: LogQuery) -> None:
    """Raise NotFound for a query that can only return nothing."""
    # Imported here because plain queries must start quickly.
    from mpijob.observation.logs import filters

    workers = max(state.workers_wanted, len(state.workers))
    if missing := filters.missing_sources(query, ranks=state.world, workers=workers, attempts=state.attempt):
        raise NotFound(
            f"job '{state.ref.name}' {missing}",
            hint=f"mpijob describe {state.ref.name} shows its workers and ranks",
        )


def secrets(ref: JobRef, backend: Backend) -> tuple[str, ...]:
    """Return the values that are masked in a job's log, as far as they are known."""
    from mpijob.observation.redaction import masking

    job = backend.spec(ref)
    known = backend.capability(SupportsSecretValues)
    told = known.secret_values(ref, job.secrets) if job.secrets and known is not None else ()
    return masking.secret_values(job, told)


# On these engines the job's programs are installed on the machine, not in an image.
_PROGRAMS_OF_A_MACHINE = ("local", "memory", "slurm")


def stacks(ref: JobRef, backend: Backend, ranks: Iterable[int], bring: bool = False) -> StackReport:
    """Return the call stacks of ranks, grouped; raise NotFound for a rank that the job does not have."""
    wanted = tuple(ranks)
    if wanted:
        refuse_absent(backend.get(ref), LogQuery(ranks=wanted))
    found = backend.stacks(ref, wanted, bring=bring)
    own = backend.name.startswith(_PROGRAMS_OF_A_MACHINE)
    return grouping.report(found, "local" if own else "kubernetes")
