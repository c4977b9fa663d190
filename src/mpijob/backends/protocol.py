"""The port that every engine implements; one conformance suite holds all of them to it.

Calls block and streams are iterators, which whoever opened them closes. `AsyncClient` runs the same calls in threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mpijob.backends.capabilities import C
from mpijob.errors import Finding
from mpijob.model import (
    Artifact,
    Event,
    Facts,
    Identity,
    JobRef,
    JobState,
    LogLine,
    LogQuery,
    MPIJob,
    Page,
    Plan,
    RankStack,
    Sample,
    Scope,
)

if TYPE_CHECKING:
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model.spec.schedule import Recurrence
    from mpijob.model.status.accounts import Account, AccountQuery
    from mpijob.model.status.mpi_profile import RankProfiles


class Schedules(Protocol):
    """The recurring jobs of a place; its calls block shortly."""

    def resolve(self, job: MPIJob, directory: Path) -> MPIJob:
        """Return the job as it can be started later, when this process and its directory are gone."""

    def lock(self) -> AbstractContextManager[None]:
        """Let nobody else change a schedule between reading and keeping it, where two may do so at once."""

    def put(self, recurrence: Recurrence) -> None:
        """Keep a schedule, new or changed."""

    def get(self, namespace: str, name: str) -> Recurrence:
        """Return one schedule; raise NotFound."""

    def all(self, namespace: str = "") -> tuple[Recurrence, ...]:
        """Return the schedules of a namespace, or of all."""

    def remove(self, namespace: str, name: str) -> None:
        """Forget a schedule; jobs that it started stay."""

    def ensure_scheduler(self) -> None:
        """See to it that somebody keeps the time."""


class Preflight(NamedTuple):
    """What was found before a job is planned: the facts that admission judges, and what the engine needs to plan.

    `context` is the engine's own; it travels from `preflight` to `plan` as a value, so that two drafts of one
    name never see each other's.
    """

    facts: Facts
    context: Any = None


class Backend(Protocol):
    """A place where jobs run."""

    @property
    def name(self) -> str:
        """What users call it: `local`, `memory`, a cluster's context."""

    @property
    def namespace(self) -> str:
        """Where the user's jobs go when nobody says otherwise."""

    def capability(self, kind: type[C]) -> C | None:
        """Return an optional ability (see `capabilities`), or None where this engine lacks it."""

    def whoami(self) -> Identity:
        """Return the user as this place knows them."""

    def devices(self) -> frozenset[str] | None:
        """Return which kinds of devices some machine here has, by resource name; None where nobody may see it."""

    def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        """Return what admission needs to judge this job for this user; with `fresh`, nothing comes from a cache."""

    def plan(self, job: MPIJob, found: Preflight) -> Plan:
        """Return exactly what would run; start nothing."""

    def server_dry_run(self, plan: Plan) -> tuple[Finding, ...]:
        """Let the place's own server judge a plan, where it has one; nothing is created."""

    def prewarm(self) -> None:
        """A submit is about to follow: get ready meanwhile what takes a moment; never needed."""

    def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Start, or queue, what the plan says, wholly or not at all; raise Conflict for a name in use."""

    def spec(self, ref: JobRef) -> MPIJob:
        """Return what was asked for."""

    def submitted_plan(self, ref: JobRef) -> Plan | None:
        """Return the plan that was submitted, where the engine keeps it."""

    def get(self, ref: JobRef) -> JobState:
        """Return the job's present state; raise NotFound."""

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return the job as each of its attempts ended, the first first; the last is its present state.

        Of an earlier attempt of which nothing was kept there is none.
        """

    def list(self, scope: Scope) -> Page:
        """Return one page of states, newest first, without per-rank detail."""

    def watch(self, scope: Scope) -> Iterator[JobState]:
        """Yield every job's state once, then each change, until closed."""

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        """Yield the merged lines in time order; with follow, until the job has ended and all is said."""

    def events(self, ref: JobRef, *, follow: bool = False) -> Iterator[Event]:
        """Yield what happened, in order; with follow, until the job has ended."""

    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        """Return the usage measured so far."""

    def mpi_profile(self, ref: JobRef) -> RankProfiles:
        """Return what each rank's MPI calls took and moved, as far as they were counted (the field `profile_mpi`)."""

    def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
        """Return the accounts of jobs that are not (yet) in the record, newest first, as far as they are wanted."""

    def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return what is worrying about a job that runs, the most certain first; nothing for any other job."""

    def reconcile(self, state: JobState) -> None:
        """Do now what the job needs and no engine does by itself (a next attempt); only explicit commands call it."""

    def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """Ask the job to end (the job's signal, then SIGKILL after the grace time) and return its state."""

    def suspend(self, ref: JobRef) -> JobState:
        """End the processes with grace, free what they held, keep the job to be resumed."""

    def resume(self, ref: JobRef) -> JobState:
        """Queue a suspended job again, as its next attempt."""

    def scale(self, ref: JobRef, workers: int) -> JobState:
        """Give an elastic job another number of workers, within its bounds; refuse any other job with the reason."""

    def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """End the job if needed and remove everything of it; its record may stay (see `past`)."""

    def execute(self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None) -> int:
        """Run a command with this terminal inside a worker, beside a rank or in the launcher; return its status."""

    def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        """Return where each rank (or those asked for) stands now, as far as it can be seen.

        `bring` allows an engine to carry this machine's py-spy to workers that have none.
        """

    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return the files that the job left, as far as nothing must be started to list them."""

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Copy one of those files to this machine."""

    def history(self) -> ArchiveReader | None:
        """Return what is remembered of jobs that are gone, where somebody writes it down."""

    def schedules(self) -> Schedules:
        """Return the recurring jobs of this place."""

    def pause(self, seconds: float) -> None:
        """Let a moment pass, in the way that suits the backend."""
