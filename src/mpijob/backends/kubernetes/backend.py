"""A cluster as a backend: Kubeflow Trainer and the MPI Operator, through the API server, as the user.

Nothing is kept here: every answer is read from the cluster's objects (`looking`), and every wish is written
onto them. The engine is plain (see `backends.base`): its calls block, its streams are read in threads. What
only some calls need is imported in them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING

from mpijob.backends.kubernetes import kubeconfig, listing
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.failures import telling
from mpijob.model import Identity, JobRef
from mpijob.settings import history_directory

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.base import Preflight
    from mpijob.backends.kubernetes.access import Access
    from mpijob.backends.kubernetes.arriving import Arrivals
    from mpijob.backends.kubernetes.attending import Attendance
    from mpijob.backends.kubernetes.looking import Eye
    from mpijob.backends.kubernetes.myself import Myself
    from mpijob.backends.kubernetes.schedules import ClusterSchedules
    from mpijob.backends.kubernetes.shortage import Counter
    from mpijob.backends.kubernetes.tending import Tending
    from mpijob.backends.kubernetes.wishes import Wishes
    from mpijob.backends.kubernetes.worries import Worries
    from mpijob.backends.models import Registered
    from mpijob.errors import Finding
    from mpijob.history.past import Past
    from mpijob.model import (
        Artifact,
        Event,
        JobState,
        LogLine,
        LogQuery,
        Model,
        MPIJob,
        Page,
        Plan,
        RankStack,
        Sample,
        Scope,
        Secret,
    )
    from mpijob.model.accounts import Account, AccountQuery
    from mpijob.model.choices import Choices, Option
    from mpijob.model.overseen import Overseen
    from mpijob.model.reporting import Progress
    from mpijob.model.rights import Question
    from mpijob.outbound.policy import Policy
    from mpijob.settings import RateSetting, Settings


class KubernetesBackend:
    """Jobs on the cluster that the user's kubeconfig means."""

    plain = True

    def __init__(
        self, settings: Settings, visitor: Access | None = None, outbound: Policy | None = None
    ) -> None:
        """Reach the cluster as its user, or as a visitor of this server, which connects for them as `outbound` says."""
        self._settings, self._visitor, self._given_outbound = settings, visitor, outbound
        self._access = visitor or kubeconfig.load(path=settings.kubeconfig, context=settings.context)
        self._api = Api(self._access)

    @property
    def _outbound(self) -> Policy:
        from mpijob.outbound.policy import ANYWHERE, strict  # a list does without: start-up is a feature

        return self._given_outbound or (ANYWHERE if self._visitor is None else strict())

    @cached_property
    def _eye(self) -> Eye:
        from mpijob.backends.kubernetes.looking import Eye  # a list does without: start-up is a feature

        return Eye(self._api, self._settings.rules, me=self._myself.name)

    @cached_property
    def _myself(self) -> Myself:
        from mpijob.backends.kubernetes.myself import Myself

        return Myself(self._api)

    @cached_property
    def _arrivals(self) -> Arrivals:
        from mpijob.backends.kubernetes.arriving import Arrivals

        return Arrivals(self._api, self._eye, self._settings, self._access, self.name)

    @cached_property
    def _shortages(self) -> Counter:
        from mpijob.backends.kubernetes.shortage import Counter

        return Counter(self._arrivals.room)

    @cached_property
    def _worries(self) -> Worries:
        from mpijob.backends.kubernetes.worries import Worries

        return Worries(self._api, self._eye, self._settings.warn_after_seconds)

    @cached_property
    def _tending(self) -> Tending:
        from mpijob.backends.kubernetes.tending import Tending

        return Tending(self._api, self._eye)

    @cached_property
    def _attendance(self) -> Attendance:
        from mpijob.backends.kubernetes.attending import Attendance

        loki = None
        if self._settings.loki:
            from mpijob.backends.kubernetes import collected

            loki = collected.of_settings(self._settings)
        return Attendance(self._api, self._eye, loki, self.past)

    @cached_property
    def _wishes(self) -> Wishes:
        from mpijob.backends.kubernetes.wishes import Wishes

        return Wishes(self._api, self._eye, self._myself.name)

    @property
    def api(self) -> Api:
        """The API server, as this user speaks to it."""
        return self._api

    async def may(self, questions: Sequence[Question]) -> tuple[bool, ...]:
        """Return the cluster's answers to what this user may do."""
        from mpijob.backends.kubernetes import visiting

        with telling("ask what you may do"):
            return visiting.may(self._api, questions)

    async def checkup(self) -> tuple[Finding, ...]:
        """Return whether the cluster is ready for jobs, as this user sees it."""
        from mpijob.backends.kubernetes import checkup

        return tuple(checkup.report(self._settings, self._api))

    def close(self) -> None:
        """Close the connections that are kept."""
        self._api.close()

    @property
    def name(self) -> str:
        """The context's name."""
        return self._access.context or "cluster"

    @property
    def namespace(self) -> str:
        """The context's namespace."""
        return self._access.namespace or "default"

    # -- before ------------------------------------------------------------------------------------
    async def whoami(self) -> Identity:
        """Return the user as the cluster knows them, or knew them a moment ago."""
        return self._myself.identity()

    async def devices(self) -> frozenset[str] | None:
        """Return what the nodes offer beside CPU and memory; None for a user who may not list nodes."""
        from mpijob.backends.kubernetes import room

        with telling("look at the nodes"):
            return room.devices(self._api)

    async def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        """Return what the cluster says about itself to this user."""
        self._refuse_own_files(job)
        return self._arrivals.preflight(job, who, fresh=fresh)

    async def plan(self, job: MPIJob, found: Preflight) -> Plan:
        """Return exactly what would be created."""
        self._refuse_own_files(job)
        return self._arrivals.plan(job, found)

    def _refuse_own_files(self, job: MPIJob) -> None:
        """A visitor's job gets nothing of the machine that this server is on."""
        if self._visitor is not None:
            from mpijob.backends.kubernetes import visiting

            visiting.refuse_own_files(job)

    async def rehearse(self, plan: Plan) -> tuple[Finding, ...]:
        """Let the API server judge what would be created; it keeps nothing."""
        from mpijob.backends.kubernetes import rehearsing

        return rehearsing.rehearse(self._api, plan)

    async def expect(self) -> None:
        """Nothing takes a moment here."""

    async def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Create the plan's objects, or find that they were created before."""
        self._refuse_own_files(plan.job)
        return self._arrivals.submit(plan)

    # -- read --------------------------------------------------------------------------------------
    async def spec(self, ref: JobRef) -> MPIJob:
        """Return what was asked for; who asked is in the state, for nobody can ask as somebody else."""
        return self._eye.wanted(ref).replace(owner="")

    async def planned(self, ref: JobRef) -> Plan | None:
        """Return nothing: a cluster keeps the objects that were made, not the plan."""
        self._eye.find(ref)
        return None

    async def get(self, ref: JobRef) -> JobState:
        """Return the job's present state, from everything that belongs to it.

        Of a job that was created a moment ago its object is all there is.
        """
        if (made := self._arrivals.just_made(ref)) is not None:
            return made
        look = self._eye.look(ref)
        return self._shortages.counted(look.state, lambda: self._eye.spec(look.found, look.seen.runtime))

    async def list(self, scope: Scope) -> Page:
        """Return one page of jobs, newest first."""
        with telling("list jobs"):
            return listing.page(self._api, scope)

    async def watch(self, scope: Scope) -> AsyncIterator[JobState]:
        """Yield every job's state once, then each change, until closed."""
        with closing(self._attendance.states(scope)) as states:
            for state in states:
                yield state

    async def oversee(self, namespace: str) -> AsyncIterator[Overseen]:
        """Yield where every job of a namespace (or of all, "") stands, then each change, kept by watches alone."""
        from mpijob.backends.kubernetes import overseeing

        with telling("watch jobs"):
            told = overseeing.oversee(self._api, namespace, self._eye.served)
            try:
                for one in told:
                    yield one
            finally:
                told.close()

    async def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        """Return the values of a job's secrets that this user may read in the cluster."""
        from mpijob.backends.kubernetes import secretvalues

        return secretvalues.known(self._api, ref, secrets, self._eye.find, own_machine=self._visitor is None)

    async def projects(self) -> tuple[Option, ...]:
        """Return the namespaces that this user may list, with what people call them."""
        from mpijob.backends.kubernetes import choices

        with telling("list namespaces"):
            return choices.projects(self._api, self._eye.served)

    async def choices(self, namespace: str) -> Choices:
        """Return what a namespace offers to a form."""
        from mpijob.backends.kubernetes import choices

        with telling(f"look at namespace {namespace}"):
            return choices.look(self._api, namespace, self._eye.served)

    async def logs(self, ref: JobRef, query: LogQuery) -> AsyncIterator[LogLine]:
        """Yield the merged lines of all pods."""
        with closing(self._attendance.lines(ref, query)) as lines:
            for line in lines:
                yield line

    async def events(self, ref: JobRef, *, follow: bool = False) -> AsyncIterator[Event]:
        """Yield what happened, in order; with follow, until the job has ended."""
        with closing(self._attendance.events(ref, follow=follow)) as events:
            for event in events:
                yield event

    async def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        """Return what the metrics API measured last, where the cluster has one, and what its Prometheus knows."""
        from mpijob.backends.kubernetes import platform_metrics, usage

        found = self._eye.find(ref)
        with telling(f"read the usage of {ref.name}"):
            prometheus = platform_metrics.of_settings(self._settings)
            return usage.samples(self._api, found, self._eye.served, prometheus)

    async def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
        """Return the accounts of jobs that are there; none where a recorder writes all of them down."""
        if self.past() is not None:
            return ()
        from mpijob.backends.kubernetes import accounts

        return await accounts.find(self, query, time.time())

    async def told(self, ref: JobRef) -> Progress | None:
        """Return how far a training is in Trainer's own words; None where it says nothing."""
        from mpijob.dialects import trainer_status

        return trainer_status.told(self._eye.find(ref).job)

    @property
    def usual_image(self) -> str:
        """The image of a job that names none."""
        return self._settings.image

    async def rates(self) -> dict[str, RateSetting]:
        """Return what hours cost, as the cluster's administrators have set it."""
        from mpijob.backends.kubernetes.governing import Governor

        with telling("read what hours cost"):
            return Governor(self._api).rates()

    async def warnings(self, ref: JobRef) -> tuple[Finding, ...]:
        """Return what is worrying by the metrics and the logs of its pods; what was measured before is kept."""
        return self._worries.of(ref)

    # -- steer -------------------------------------------------------------------------------------
    async def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """End the job and keep its record."""
        return self._wishes.cancel(ref, grace_seconds)

    async def suspend(self, ref: JobRef) -> JobState:
        """Put the job to rest."""
        return self._wishes.suspend(ref)

    async def resume(self, ref: JobRef) -> JobState:
        """Let a suspended job start again."""
        return self._wishes.resume(ref)

    async def scale(self, ref: JobRef, workers: int) -> JobState:
        """Give an elastic job another number of workers; which of them come and go is its engine's business."""
        return self._wishes.scale(ref, workers)

    async def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """End the job if needed and remove everything of it; by name, every job that had the name."""
        self._wishes.delete(ref, grace_seconds)

    async def reconcile(self, state: JobState) -> None:
        """Start the next attempt of a job that failed, or end one that cannot start, once it is time."""
        self._tending.tend(state)

    # -- reach in ----------------------------------------------------------------------------------
    async def execute(
        self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None
    ) -> int:
        """Run a command with this terminal inside a pod of the job."""
        from mpijob.backends.kubernetes import visits

        look = self._eye.look(ref)
        with telling(f"run a command in {ref.name}"):
            return visits.execute(self._api, look.state, look.seen, argv, worker=worker, rank=rank)

    async def stacks(
        self, ref: JobRef, ranks: tuple[int, ...] = (), *, bring: bool = False
    ) -> tuple[RankStack, ...]:
        """Return where each rank stands now, seen from inside its worker's pod."""
        from mpijob.backends.kubernetes import stacks

        look = self._eye.look(ref)
        with telling(f"look into the workers of {ref.name}"):
            return stacks.collect(self._api, look.state, look.seen, ranks, stacks.tool() if bring else b"")

    async def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return the files that the job left in buckets: a cluster keeps none outside a volume."""
        from mpijob.backends.kubernetes import results

        return tuple(sorted(results.left(self._api, results.kept(self._eye, ref), self._outbound)))

    async def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Copy one of those files."""
        from mpijob.backends.kubernetes import results

        results.fetch(self._api, results.kept(self._eye, ref), path, target, self._outbound)

    def schedules(self) -> ClusterSchedules:
        """Return the recurring jobs of the cluster."""
        from mpijob.backends.kubernetes.schedules import ClusterSchedules

        return ClusterSchedules(self._api, self._settings)

    async def register(self, ref: JobRef, model: Model) -> Registered:
        """Write the model of a job down in the registry, or write it down again."""
        from mpijob.backends.kubernetes import registering

        look = self._eye.look(ref)
        job = self._eye.spec(look.found, look.seen.runtime)
        return registering.register(self._api, look.state, job, model, self._settings)

    def past(self) -> Past | None:
        """Return what a recorder has written down of this cluster's jobs, where it can be read from here."""
        from mpijob.backends.kubernetes.remembered import remembered

        return remembered(history_directory(self._settings, self.name), self._settings)

    async def pause(self, seconds: float) -> None:
        """Let a moment pass; a cluster is not asked more often than it changes."""
        from mpijob.backends.kubernetes import attending

        attending.pause(seconds)
