"""Submits a job to a cluster: preflight, plan, create.

The steps are separate calls; the result of the first is passed to the second as a value. `preflight` reads,
`planner` builds the objects, `create_objects` creates them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mpijob import admission
from mpijob.backends.bounded_dict import BoundedDict
from mpijob.backends.common_errors import name_in_use
from mpijob.backends.kubernetes.client.api_errors import ApiError, translated
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.protocol import Preflight
from mpijob.model import JobRef, Phase

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.auth.access import Access
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.preflight.cache import PreflightCache
    from mpijob.backends.kubernetes.preflight.context import ClusterContext
    from mpijob.backends.kubernetes.preflight.preflight import PreflightResult
    from mpijob.backends.kubernetes.status.derive_state import Document
    from mpijob.backends.kubernetes.status.job_reader import JobReader
    from mpijob.backends.registry.image_exists import ImageLookup
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import Facts, Identity, JobState, MPIJob, Plan
    from mpijob.settings import Settings

_FRESH_SECONDS = 1.0


def _is_fresh(moment: float) -> bool:
    """Return whether something read then can still be used; names are checked by the API server itself."""
    return time.monotonic() - moment < _FRESH_SECONDS


def _will_wait(job: MPIJob, facts: Facts) -> bool:
    """Return whether the job's queue has no capacity for it now."""
    queue = facts.cluster.queue if facts.cluster is not None else None
    if queue is None or not queue.found or not queue.behind:
        return False
    return bool(facts.waiting_jobs) or (facts.room_known and not admission.needs(job).fits(facts.free))


class Submission:
    """Submits jobs through one API client; `past` returns the job history, `cluster` is the cluster's name."""

    def __init__(
        self,
        api: Api,
        reader: JobReader,
        settings: Settings,
        access: Access,
        cluster: str,
        past: Callable[[], ArchiveReader | None] = lambda: None,
    ) -> None:
        self._api, self._reader, self._settings, self._access = api, reader, settings, access
        self._past = past
        self._cluster = cluster
        self._created: BoundedDict[JobRef, tuple[float, Document]] = BoundedDict()

    @cached_property
    def _cache(self) -> PreflightCache:
        from mpijob.backends.kubernetes.preflight.cache import PreflightCache

        return PreflightCache()

    @cached_property
    def _image_lookup(self) -> ImageLookup:
        from mpijob.backends.registry.image_exists import ImageLookup

        return ImageLookup(self._settings)

    def preflight(self, job: MPIJob, who: Identity, *, fresh: bool = False) -> Preflight:
        """Return the facts for admission, and the context for the planner; `fresh` ignores the cache."""
        if fresh:
            self._cache.forget(job.namespace)
        gathered = self._gather(job, self._cache, self._image_lookup)
        around = msgspec.structs.replace(gathered.around, owner=who.user)
        return Preflight(self._complete(job, gathered.facts, around), around)

    def _complete(self, job: MPIJob, facts: Facts, around: ClusterContext) -> Facts:
        if job.after:
            facts = msgspec.structs.replace(facts, dependencies=self._reader.dependencies(job))
        if self._settings.broker:
            from mpijob.backends.kubernetes.broker import client

            facts = client.with_broker(facts, job, self._access, self._settings)
        if not facts.wait_basis and _will_wait(job, facts):
            facts = self._with_forecast(job, facts, around)
        if facts.taken_names and self._reader.read(JobRef(job.namespace, job.name)).state.phase.final:
            # The job is over by its pods, and its engine will notice in a moment.
            return msgspec.structs.replace(facts, taken_names=frozenset())
        return facts

    def _with_forecast(self, job: MPIJob, facts: Facts, around: ClusterContext) -> Facts:
        """Add the start time of a job that has to wait, if its user may read the queue."""
        from mpijob.backends.kubernetes.queues import collect, live, new_job

        history = live.of_record(self._past(), job.namespace)
        try:
            queues = collect.queues(self._api, job.namespace, self._reader.served, history)
        except ApiError:
            return facts
        placement = new_job.placed(queues, job, facts, around.workload_priorities, self._api.now())
        if placement is None:
            return facts
        return msgspec.structs.replace(
            facts,
            position=placement.forecast.position,
            ahead=placement.ahead,
            wait_estimate_seconds=placement.forecast.seconds,
            wait_range_seconds=placement.forecast.span,
            wait_sample=placement.ended,
            wait_basis=placement.forecast.basis,
        )

    def capacity_for(self, job: MPIJob) -> Facts:
        """Return the free capacity for a job that exists already."""
        return self._gather(job, self._cache).facts

    def _gather(
        self, job: MPIJob, lately: PreflightCache | None = None, asker: ImageLookup | None = None
    ) -> PreflightResult:
        from mpijob.backends.kubernetes.preflight import preflight

        place, served = f"cluster {self._cluster}", self._reader.served
        with translated("read the cluster state"):
            return preflight.gather(
                self._api, job, served, self._settings, place=place, cache=lately, lookup=asker
            )

    def plan(self, job: MPIJob, found: Preflight) -> Plan:
        from mpijob.backends.kubernetes.submit import planner

        return planner.plan(job, found.facts, found.context, self._settings, Path.cwd(), self._cluster)

    def submit(self, plan: Plan) -> JobRef:
        """Create the plan's objects, or find that they were created before; raise Conflict for a name in use."""
        from mpijob.backends.kubernetes.status import derive_state
        from mpijob.backends.kubernetes.submit import create_objects

        ref = JobRef(plan.job.namespace, plan.job.name, plan.uid)
        # An object with the job's own name is refused by the API server.
        if plan.documents[-1]["metadata"]["name"] != ref.name:
            self._refuse_second(ref)
        try:
            with translated(f"create job {ref.name}"):
                self._created[ref] = (
                    time.monotonic(),
                    create_objects.submit(self._api, plan, Path(self._settings.home)).job,
                )
        except create_objects.Taken as taken:
            named = taken.existing.get("status")
            raise name_in_use(
                ref, derive_state.summary(taken.existing).phase if named else Phase.PENDING
            ) from taken
        return ref

    def _refuse_second(self, ref: JobRef) -> None:
        # Ended jobs may share a name with one that has not ended.
        from mpijob.backends.kubernetes.status import derive_state

        with translated(f"look up job {ref.name}"):
            known = job_objects.of_name(self._api, ref.namespace, ref.name, self._reader.served)
        for job in known:
            other = job_objects.ref_of(job)
            if other.uid == ref.uid or derive_state.summary(job).phase.final:
                continue
            state = self._reader.read(other).state
            if not state.phase.final:
                raise name_in_use(ref, state.phase)

    def just_created(self, ref: JobRef) -> JobState | None:
        """Return the state of a job that was created a moment ago from its object, once; None later."""
        when, created = self._created.pop(ref, (0.0, None))
        if created is None or not _is_fresh(when):
            return None
        from mpijob.backends.kubernetes.status import derive_state

        return derive_state.summary(created)
