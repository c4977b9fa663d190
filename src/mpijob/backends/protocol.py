"""The port that every engine implements; one conformance suite (`tests/conformance`) tests all of them.

Calls block, and streams are iterators that their opener closes; `AsyncClient` runs the same calls in threads
(docs/decisions/0050). What only some engines have is in `capabilities`.
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
    """The recurring jobs of an engine."""

    def resolve(self, job: MPIJob, directory: Path) -> MPIJob:
        """Return the job in a form that can be submitted later, without this process and its current directory."""

    def lock(self) -> AbstractContextManager[None]:
        """Exclude other writers from reading a schedule to storing it, where there may be several."""

    def put(self, recurrence: Recurrence) -> None:
        """Store a schedule, new or changed."""

    def get(self, namespace: str, name: str) -> Recurrence:
        """Return one schedule; raise NotFound."""

    def all(self, namespace: str = "") -> tuple[Recurrence, ...]:
        """Return the schedules of a namespace, or of all namespaces."""

    def remove(self, namespace: str, name: str) -> None:
        """Delete a schedule; jobs that it started stay."""

    def ensure_scheduler(self) -> None:
        """Start the process that submits due jobs, unless it runs or the engine has a server that does it."""


class Preflight(NamedTuple):
    """What was found before a job is planned: the facts that admission checks, and what the engine needs to plan.

    `context` is known to the engine only. It is passed from `preflight` to `plan` as a value, so that two
    concurrent drafts of one name do not share it.
    """

    facts: Facts
    context: Any = None


class Backend(Protocol):
    """An engine, which runs jobs."""

    @property
    def name(self) -> str:
        """Its name for users: `local`, `slurm`, `memory`, or a cluster's context."""

    @property
    def namespace(self) -> str:
        """The namespace of jobs that do not set one."""

    def capability(self, kind: type[C]) -> C | None:
        """Return an optional ability (see `capabilities`), or None if this engine lacks it."""

    def whoami(self) -> Identity:
        """Return the user as this engine knows them."""

    def devices(self) -> frozenset[str] | None:
        """Return the resource names of devices that some machine has; None if the user may not list them."""

    def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        """Return what admission needs to check this job for this user; with `fresh`, nothing comes from a cache."""

    def plan(self, job: MPIJob, found: Preflight) -> Plan:
        """Return exactly what would run; start nothing."""

    def server_dry_run(self, plan: Plan) -> tuple[Finding, ...]:
        """Let the engine's server validate a plan, if it has one; nothing is created."""

    def prewarm(self) -> None:
        """Prepare in the background what a submit needs; optional, called when a submit is about to follow."""

    def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Start or queue the job completely or not at all; raise Conflict for a name in use."""

    def spec(self, ref: JobRef) -> MPIJob:
        """Return the job as it was submitted."""

    def submitted_plan(self, ref: JobRef) -> Plan | None:
        """Return the plan that was submitted; None if the engine does not store it."""

    def get(self, ref: JobRef) -> JobState:
        """Return the job's current state; raise NotFound."""

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return the final state of each attempt, the first one first; the last is the job's current state.

        Earlier attempts of which nothing is stored are left out.
        """

    def list(self, scope: Scope) -> Page:
        """Return one page of states, newest first, without per-rank detail."""

    def watch(self, scope: Scope) -> Iterator[JobState]:
        """Yield every job's state once, then each change, until closed."""

    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        """Yield the merged lines in time order; with `follow`, until the job has ended and all lines are read."""

    def events(self, ref: JobRef, *, follow: bool = False) -> Iterator[Event]:
        """Yield the job's events in order; with `follow`, until the job has ended."""

    def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        """Return the usage measured so far."""

    def mpi_profile(self, ref: JobRef) -> RankProfiles:
        """Return time and bytes of each rank's MPI calls, if they were counted (the field `profile_mpi`)."""

    def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
        """Return the matching accounts of jobs that are not (yet) in the history, newest first."""

    def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return early warnings of a running job, the most certain first; nothing for any other job."""

    def reconcile(self, state: JobState) -> None:
        """Do now what the job needs and no engine does by itself (a next attempt).

        Called by explicit commands only: reading must not change anything (decision 0049).
        """

    def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """Send the job's signal, then SIGKILL after the grace time; return the job's state."""

    def suspend(self, ref: JobRef) -> JobState:
        """End the processes with grace, free their resources, and keep the job for `resume`."""

    def resume(self, ref: JobRef) -> JobState:
        """Queue a suspended job again, as its next attempt."""

    def scale(self, ref: JobRef, workers: int) -> JobState:
        """Change the number of workers of an elastic job within its bounds; raise for any other job."""

    def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """End the job if needed and remove everything of it, except what `history` keeps."""

    def execute(self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None) -> int:
        """Run a command with this terminal inside a worker, beside a rank or in the launcher; return its status."""

    def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        """Return the current call stack of each rank, or of the given ranks; a missing one has its reason.

        With `bring`, an engine may copy this machine's py-spy to workers that have none.
        """

    def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return the output files that can be listed without starting anything."""

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Copy one of those files to this machine."""

    def history(self) -> ArchiveReader | None:
        """Return the history of deleted jobs; None if nothing records it."""

    def schedules(self) -> Schedules: ...

    def pause(self, seconds: float) -> None:
        """Sleep; the engine in memory advances its clock instead."""
