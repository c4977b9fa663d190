"""A cluster as a backend: Kubeflow Trainer and the MPI Operator, through the API server, as the user.

Nothing is kept here: every answer is read from the cluster's objects (`looking`), and every wish is written
onto them. The engine is plain (see `backends.base`): its calls block, its streams are read in threads. What
only some calls need is imported in them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.kubernetes import gathering, kinds, kubeconfig, listing
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.failures import ApiError, telling
from mpijob.backends.refusals import name_in_use, refuse_scaling
from mpijob.errors import BackendError, Conflict, MpiJobError, NotFound, Unsupported
from mpijob.model import Identity, JobRef, Phase
from mpijob.settings import history_directory

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.kubernetes.access import Access
    from mpijob.backends.kubernetes.gathering import Found
    from mpijob.backends.kubernetes.lately import Lately
    from mpijob.backends.kubernetes.looking import Eye, Look
    from mpijob.backends.kubernetes.preflight import Gathered
    from mpijob.backends.kubernetes.schedules import ClusterSchedules
    from mpijob.backends.kubernetes.states import Document
    from mpijob.backends.kubernetes.surroundings import Surroundings
    from mpijob.backends.kubernetes.tending import Tending
    from mpijob.backends.models import Registered
    from mpijob.backends.registry.asking import Asker
    from mpijob.errors import Finding
    from mpijob.history.past import Past
    from mpijob.model import (
        Artifact,
        Event,
        Facts,
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
    from mpijob.settings import RateSetting, Settings

_POLL_SECONDS = 0.5
_REMOVAL_SECONDS = 60.0
_SETTLE_SECONDS = 30.0
_FRESH_SECONDS = 1.0
_ROOM_SECONDS = 5.0
_SAME_USER_SECONDS = 5.0
_ENDED = frozenset({Phase.CANCELLED, Phase.SUCCEEDED, Phase.FAILED})


def _is_fresh(moment: float) -> bool:
    """Whether what was seen then may be taken for what is: names are guarded by the API server itself."""
    return time.monotonic() - moment < _FRESH_SECONDS


class KubernetesBackend:
    """Jobs on the cluster that the user's kubeconfig means."""

    plain = True

    def __init__(self, settings: Settings, visitor: Access | None = None) -> None:
        """Reach the cluster of the settings as its user, or as a visitor of the server that this is."""
        self._settings = settings
        self._visitor = visitor
        self._access = visitor or kubeconfig.load(path=settings.kubeconfig, context=settings.context)
        self._api = Api(self._access)
        self._around: dict[tuple[str, str], Surroundings] = {}
        self._looked: dict[tuple[str, str], float] = {}  # when nobody else had a job of that name
        self._measured: dict[str, list[Sample]] = {}  # so that a watch sees trends
        self._made: dict[JobRef, tuple[float, Document]] = {}
        self._rooms: dict[str, tuple[float, Facts]] = {}
        self._me: tuple[float, Identity] | None = None

    @cached_property
    def _eye(self) -> Eye:
        from mpijob.backends.kubernetes.looking import Eye  # a list does without: start-up is a feature

        return Eye(self._api, self._settings.rules)

    @cached_property
    def _tending(self) -> Tending:
        from mpijob.backends.kubernetes.tending import Tending

        return Tending(self._api, self._eye, lambda job: self._gather(job, self._who()).around)

    @cached_property
    def _lately(self) -> Lately:
        from mpijob.backends.kubernetes.lately import Lately

        return Lately()

    @cached_property
    def _asker(self) -> Asker:
        from mpijob.backends.registry.asking import Asker

        return Asker(self._settings)

    @property
    def api(self) -> Api:
        """The API server, as this user speaks to it."""
        return self._api

    async def may(self, questions: Sequence[Question]) -> tuple[bool, ...]:
        """Return the cluster's answers to what this user may do."""
        from mpijob.backends.kubernetes import visiting

        with telling("ask what you may do"):
            return visiting.may(self._api, questions)

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
        if self._me is None or time.monotonic() - self._me[0] > _SAME_USER_SECONDS:
            self._me = time.monotonic(), self._who()
        return self._me[1]

    async def _by(self) -> str:
        """Return whose will something is, for the note of it on the job."""
        try:
            return (await self.whoami()).user or "the user"
        except MpiJobError:  # a cluster that does not tell users who they are
            return "the user"

    def _who(self) -> Identity:
        body = {"apiVersion": kinds.SELF_REVIEW.api, "kind": kinds.SELF_REVIEW.name}
        with telling("ask who you are"):
            review = self._api.create(kinds.SELF_REVIEW.path(), body)
        info = (review.get("status") or {}).get("userInfo") or {}
        groups = tuple(info.get("groups") or ())
        return Identity(
            user=info.get("username", ""), groups=groups, administrator="system:masters" in groups
        )

    async def devices(self) -> frozenset[str] | None:
        """Return what the nodes offer beside CPU and memory; None for a user who may not list nodes."""
        from mpijob.backends.kubernetes import room

        with telling("look at the nodes"):
            return room.devices(self._api)

    async def facts(self, job: MPIJob, who: Identity) -> Facts:
        """Return what the cluster says about itself to this user."""
        self._refuse_own_files(job)
        if (job.namespace, job.name) in self._around:  # whoever asks again is told everything anew
            self._lately.forget(job.namespace)
        gathered = self._gather(job, who, self._lately, self._asker)
        self._around[job.namespace, job.name] = gathered.around
        if not gathered.around.names:
            self._looked[job.namespace, job.name] = time.monotonic()
        facts = gathered.facts
        if job.after:
            wanted = (JobRef(job.namespace, name) for name in job.after)
            facts = msgspec.structs.replace(facts, dependencies=self._eye.dependencies(wanted))
        if self._settings.broker:
            from mpijob.backends.kubernetes import broker_client

            facts = broker_client.filled(facts, job, self._access, self._settings)
        if facts.taken_names and self._eye.look(JobRef(job.namespace, job.name)).state.phase.final:
            return msgspec.structs.replace(facts, taken_names=frozenset())  # its engine will say so, too
        return facts

    def _gather(
        self, job: MPIJob, who: Identity, lately: Lately | None = None, asker: Asker | None = None
    ) -> Gathered:
        from mpijob.backends.kubernetes import preflight

        place, served = f"cluster {self.name}", self._eye.served
        with telling("look at the cluster"):
            return preflight.gather(
                self._api, job, who, served, self._settings, place=place, lately=lately, asker=asker
            )

    async def plan(self, job: MPIJob, facts: Facts) -> Plan:
        """Return exactly what would be created."""
        self._refuse_own_files(job)
        from pathlib import Path

        from mpijob.backends.kubernetes import planner

        around = self._around[job.namespace, job.name]
        return planner.plan(job, facts, around, self._settings, Path.cwd(), self.name)

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
        from mpijob.backends.kubernetes import states, submitting

        self._refuse_own_files(plan.job)
        ref = JobRef(plan.job.namespace, plan.job.name, plan.uid)
        if not _is_fresh(self._looked.pop((ref.namespace, ref.name), 0.0)):
            self._refuse_second(ref)
        try:
            with telling(f"create job {ref.name}"):
                self._made[ref] = time.monotonic(), submitting.submit(self._api, plan).job
        except submitting.Taken as taken:
            named = taken.existing.get("status")
            raise name_in_use(
                ref, states.summary(taken.existing).phase if named else Phase.PENDING
            ) from taken
        return ref

    def _refuse_second(self, ref: JobRef) -> None:
        """Two jobs of one name may be known, but only one of them unfinished."""
        from mpijob.backends.kubernetes import states

        with telling(f"look up job {ref.name}"):
            known = gathering.of_name(self._api, ref.namespace, ref.name, self._eye.served)
        for job in known:
            other = gathering.ref_of(job)
            if other.uid == ref.uid or states.summary(job).phase.final:
                continue
            state = self._eye.look(other).state
            if not state.phase.final:
                raise name_in_use(ref, state.phase)

    # -- read --------------------------------------------------------------------------------------
    async def spec(self, ref: JobRef) -> MPIJob:
        """Return what was asked for."""
        found = self._eye.find(ref)
        return self._eye.spec(found, self._eye.runtime(found))

    async def planned(self, ref: JobRef) -> Plan | None:
        """Return nothing: a cluster keeps the objects that were made, not the plan."""
        self._eye.find(ref)
        return None

    async def get(self, ref: JobRef) -> JobState:
        """Return the job's present state, from everything that belongs to it.

        Of a job that was created a moment ago its object is all there is.
        """
        when, made = self._made.pop(ref, (0.0, None))
        if made is not None and _is_fresh(when):
            from mpijob.backends.kubernetes import states

            return states.summary(made)
        return self._with_numbers(self._eye.look(ref))

    def _with_numbers(self, look: Look) -> JobState:
        from mpijob.backends.kubernetes import shortage

        state = look.state
        if not shortage.is_short(state):
            return state
        try:
            job = self._eye.spec(look.found, look.seen.runtime)
            return shortage.counted(state, job, self._room(job, state))
        except (MpiJobError, ApiError):
            return state  # what the scheduler says is true without numbers, too

    def _room(self, job: MPIJob, state: JobState) -> Facts:
        """Return what is free, counted anew every few seconds: whoever waits looks at the job more often."""
        when, facts = self._rooms.get(state.ref.uid, (0.0, None))
        if facts is None or time.monotonic() - when > _ROOM_SECONDS:
            facts = self._gather(job, Identity(state.owner), self._lately).facts
            self._rooms[state.ref.uid] = time.monotonic(), facts
        return facts

    async def list(self, scope: Scope) -> Page:
        """Return one page of jobs, newest first."""
        with telling("list jobs"):
            return listing.page(self._api, scope)

    async def watch(self, scope: Scope) -> AsyncIterator[JobState]:
        """Yield every job's state once, then each change, until closed."""
        from mpijob.backends.kubernetes import watcher

        changes = watcher.changes(self._api, scope, self._eye.served, self._attended)
        try:
            with telling("watch jobs"):
                for state in changes:
                    yield state
        finally:
            changes.close()

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

        found = self._eye.find(ref)
        return secretvalues.read(self._api, found.ref, secrets)

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
        from mpijob.backends.kubernetes import following, logs

        ref = self._eye.find(ref).ref
        if not query.follow:
            with telling(f"read the logs of {ref.name}"):
                for line in logs.stored(self._api, self._eye.voices(ref), query):
                    yield line
            return
        follower = following.Following(self._api, query)
        try:
            with telling(f"read the logs of {ref.name}"):
                for line in follower.lines(lambda: (self._eye.voices(ref), self._over(ref))):
                    yield line
        finally:
            follower.close()

    def _over(self, ref: JobRef) -> bool:
        try:
            return self._attended(ref).phase.final
        except NotFound:
            return True

    def _attended(self, ref: JobRef) -> JobState:
        """Return the state of a job that somebody follows, and do what it needs for that."""
        look = self._eye.look(ref)
        self._tending.tend(look.state)
        self._tending.mend(look)
        return look.state

    async def events(self, ref: JobRef, *, follow: bool = False) -> AsyncIterator[Event]:
        """Yield what happened, in order; with follow, until the job has ended."""
        from mpijob.backends.patience import Patience

        told: set[tuple[float, str, str]] = set()
        patience, (story, over) = Patience(), self._eye.story(ref)
        while True:
            for event in story:
                key = (event.time, event.reason, event.message)
                if key not in told:
                    told.add(key)
                    yield event
            if not follow or over:
                return
            await self.pause(_POLL_SECONDS)
            try:
                story, over = self._eye.story(ref)
            except BackendError as error:
                await self.pause(patience.bear(error))
            else:
                patience.answered()

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
        from mpijob.backends.kubernetes import usage, worries

        look = self._eye.look(ref)
        if look.state.phase is not Phase.RUNNING:
            return ()
        past = self._measured.setdefault(look.state.ref.uid, [])
        with telling(f"read the usage of {ref.name}"):
            past += usage.samples(self._api, look.found, self._eye.served)
            lines = worries.last_lines(self._api, self._eye.voices(look.found.ref), time.time())
        del past[: -worries.MOST_SAMPLES]
        return worries.judged(look.state, past, lines, self._settings.warn_after_seconds, time.time())

    # -- steer -------------------------------------------------------------------------------------
    async def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """End the job and keep its record."""
        from mpijob.backends.kubernetes import steering

        found, state, seen, _ = self._eye.look(ref)
        if state.phase.final:
            return state
        grace = (await self.spec(found.ref)).grace_seconds if grace_seconds is None else grace_seconds
        with telling(f"cancel job {ref.name}"):
            steering.cancel(self._api, found, seen, grace, await self._by())
        return self._settled(found.ref, _ENDED, grace)

    async def suspend(self, ref: JobRef) -> JobState:
        """Put the job to rest."""
        from mpijob.backends.kubernetes import steering

        found, state, seen, _ = self._eye.look(ref)
        if state.phase is Phase.SUSPENDED:
            return state
        if state.phase.final:
            raise Conflict(f"{ref} is {state.phase.value}; only a job that has not ended can be suspended")
        with telling(f"suspend job {ref.name}"):
            steering.suspend(self._api, found, seen, await self._by())
        return self._settled(
            found.ref, frozenset({Phase.SUSPENDED}), (await self.spec(found.ref)).grace_seconds
        )

    async def resume(self, ref: JobRef) -> JobState:
        """Let a suspended job start again."""
        from mpijob.backends.kubernetes import steering

        found, state, seen, _ = self._eye.look(ref)
        if state.phase is not Phase.SUSPENDED:
            raise Conflict(f"{ref} is {state.phase.value}; only a suspended job can be resumed")
        with telling(f"resume job {ref.name}"):
            steering.resume(self._api, found, seen, await self._by())
        return self._eye.look(found.ref).state

    async def scale(self, ref: JobRef, workers: int) -> JobState:
        """Give an elastic job another number of workers; which of them come and go is its engine's business."""
        from mpijob.backends.kubernetes import steering

        found, state, seen, _ = self._eye.look(ref)
        steering.refuse_scaling(found, workers)
        refuse_scaling(state, self._eye.spec(found, seen.runtime), workers)
        if workers == state.workers_wanted:
            return state
        with telling(f"scale job {ref.name}"):
            steering.scale(self._api, found, state.workers_wanted, workers, await self._by())
        return self._eye.look(found.ref).state

    async def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """End the job if needed and remove everything of it; by name, every job that had the name."""
        found: Found | None = self._eye.find(ref)
        while found is not None:
            self._remove(found, grace_seconds)
            found = None if ref.uid else self._next(ref)

    def _next(self, ref: JobRef) -> Found | None:
        try:
            return self._eye.find(ref)
        except NotFound:
            return None

    def _remove(self, found: Found, grace_seconds: float | None) -> None:
        from mpijob.backends.kubernetes import steering

        jobs: tuple[Document, ...] = (*found.earlier, found.job)

        def gone() -> bool:
            return not any(gathering.remains(self._api, found.kind, job) for job in jobs)

        with telling(f"delete job {found.ref.name}"):
            pods = [pod for job in jobs for pod in gathering.pods(self._api, found.kind, job)]
            steering.delete(self._api, found, jobs)
            if grace_seconds is not None:
                steering.delete_pods(self._api, pods, grace_seconds=int(grace_seconds))
            if not steering.until(gone, _REMOVAL_SECONDS):
                raise BackendError(
                    f"{found.ref} is marked for removal, but some of it is still there after {_REMOVAL_SECONDS:g} s",
                    hint=f"look at what holds it: kubectl -n {found.ref.namespace} get {found.kind.plural},pods",
                )

    def _settled(self, ref: JobRef, phases: frozenset[Phase], grace_seconds: float) -> JobState:
        """Return the state once the job is where it was sent, or where it is when that takes too long."""
        from mpijob.backends.kubernetes import steering

        state = self._eye.look(ref).state

        def there() -> bool:
            nonlocal state
            state = self._eye.look(ref).state
            return state.phase in phases

        if state.phase not in phases:
            steering.until(there, grace_seconds + _SETTLE_SECONDS)
        return state

    async def tend(self, state: JobState) -> None:
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

        job = await self.spec(ref)
        if not results.volumes(job):
            raise _no_files(self._eye.find(ref).ref)
        return tuple(sorted(results.left(self._api, job)))

    async def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Copy one of those files."""
        from mpijob.backends.kubernetes import results

        job = await self.spec(ref)
        if not results.volumes(job):
            raise _no_files(self._eye.find(ref).ref)
        results.fetch(self._api, job, path, target)

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
        time.sleep(max(seconds, _POLL_SECONDS))  # noqa: ASYNC251 - a plain engine blocks


def _no_files(ref: JobRef) -> Unsupported:
    return Unsupported(
        f"the files of {ref} go with its pods: a cluster keeps what is on a volume",
        hint="give the job a volume of kind s3 and write results there; those of a claim are read by another job",
    )
