"""One look at a job: find its objects, read all that belongs to it, derive where it stands.

The engine's verbs begin with a look; what a look costs is a few reads side by side and the two ends of the
launcher's log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError, translated, unread_findings
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.status.job_objects import Found
from mpijob.errors import NotFound
from mpijob.model import JobRef, JobState, Phase
from mpijob.model.spec.dependencies import Dependency, names, of_entries

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.logs.pod_logs import PodLogSource
    from mpijob.backends.kubernetes.status.derive_state import Document, Objects
    from mpijob.model import Event, MPIJob

_LAST_WORD_SECONDS = 3.0  # after a job's end, the cluster's times being whole seconds


class JobSnapshot(NamedTuple):
    """A job's object, its state, everything that it was derived from, and when its world was proved.

    `ended` is how the attempt ended where the job waits for its next one.
    """

    found: Found
    state: JobState
    seen: Objects
    proved: float | None
    ended: JobState | None = None

    @property
    def own(self) -> JobState:
        """The state of the newest attempt itself, also between it and the next one."""
        return self.ended or self.state


EarlierEvents = dict[int, "list[Event]"]  # by attempt


class Timeline(NamedTuple):
    """What happened to a job, in order, and whether it has ended."""

    events: tuple[Event, ...]
    over: bool


class JobReader:
    """Looks at jobs through one API client."""

    def __init__(
        self,
        api: Api,
        rules: str = "",
        events: job_objects.EventsOf | None = None,
        me: Callable[[], str] = lambda: "",
    ) -> None:
        """Look through a client; `me` is its user's name, asked for where people have jobs of one name."""
        self._api, self._me = api, me
        self._rules = rules  # the file of the site's own rules
        self._events = events

    @cached_property
    def served(self) -> frozenset[str]:
        """Every `group/version` that the cluster serves."""
        from mpijob.backends.kubernetes.client import discovery

        with translated("read the cluster state"):
            return discovery.served(self._api)

    def find(self, ref: JobRef) -> Found:
        """Return the job's newest attempt; raise NotFound."""
        with translated(f"look up job {ref.name or ref.uid}"):
            return job_objects.find(self._api, ref, lambda: self.served, self._me)

    def read(self, ref: JobRef) -> JobSnapshot:
        """Return a look at the job; between two attempts it is queued again."""
        look = self.attempt(ref)
        if look.state.phase is not Phase.FAILED:
            return look
        from mpijob.backends.kubernetes.submit import retry

        job = self.spec(look.found, look.seen.runtime)
        if not retry.may_follow(look.state, job):
            return look
        return look._replace(state=retry.waiting(look.state, job, self._api.now()), ended=look.state)

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return the job as each of its attempts ended, as far as their objects are there, and as it is now."""
        look = self.read(ref)
        earlier = [self.attempt_of(found).state for found in look.found.attempts]
        if look.ended is None:
            return (*earlier, look.state)
        return (*earlier, look.ended, msgspec.structs.replace(look.state, attempt=look.state.attempt + 1))

    def attempt(self, ref: JobRef) -> JobSnapshot:
        """Return a look at the job's newest attempt, however it ended.

        A node tells last that it ended a pod which somebody removed: when the job is over, and the pod gone.
        """
        look = self._attempt(ref)
        if not self._unheard(look):
            return look
        from mpijob.backends.kubernetes.actions import patches

        def told() -> bool:
            nonlocal look
            look = self._attempt(ref)
            return not self._unheard(look)

        patches.until(told, _LAST_WORD_SECONDS)
        return look

    def _unheard(self, look: JobSnapshot) -> bool:
        """Whether the job has just failed, and nothing of what ended it has been told yet."""
        state = look.state
        if state.phase is not Phase.FAILED or self._api.now() - (state.finished or 0.0) >= _LAST_WORD_SECONDS:
            return False
        from mpijob.observation.state.phase import Reason

        return state.reason == Reason.LAUNCHER_UNACCOUNTED

    def _attempt(self, ref: JobRef) -> JobSnapshot:
        return self.attempt_of(self.find(ref))

    def attempt_of(self, found: Found) -> JobSnapshot:
        """Return a look at one attempt."""
        from mpijob.backends.kubernetes.status import (  # a list has its own: start-up is a feature
            derive_state,
            launcher_log,
        )

        refused = list[ApiError]()
        with translated(f"read job {found.ref.name}"):
            seen = job_objects.objects(self._api, found, self.served, refused, self._events)
            log = launcher_log.read(self._api, seen.pods, refused)
        seen = _with_progress(seen, log.text)
        state = derive_state.derive(seen, now=self._api.now(), launcher_log=log.text, rules=self._rules)
        if refused:
            state = msgspec.structs.replace(state, findings=(*state.findings, *unread_findings(refused)))
        return JobSnapshot(found, state, seen, log.proved)

    def dependencies(self, job: MPIJob) -> tuple[Dependency, ...]:
        """Return where jobs stand that another waits for: the newest of each name."""
        refs = [JobRef(job.namespace, name) for name in names(job.after)]
        return of_entries(job.after, ((ref, self.state_of(ref)) for ref in refs))

    def state_of(self, ref: JobRef) -> JobState | None:
        """Return where a job stands that may be gone."""
        try:
            return self.read(ref).state
        except NotFound:
            return None

    def spec(self, found: Found, runtime: Document | None) -> MPIJob:
        """Return what was asked for, as the engine's objects tell it."""
        from mpijob.formats.kubernetes import mpijob, trainjob
        from mpijob.formats.status import legacy_jobs

        if found.kind is resources.MPIJOB:
            return mpijob.read((found.job,)).job
        if found.kind is not resources.TRAINJOB:
            return legacy_jobs.read(found.job)
        return trainjob.read((found.job, *((runtime,) if runtime else ()))).job

    def wanted(self, ref: JobRef) -> MPIJob:
        """Return what was asked for, found by the job's name."""
        found = self.find(ref)
        return self.spec(found, self.runtime(found))

    def runtime(self, found: Found) -> Document | None:
        """Return the runtime that the job refers to, if it has one that may be read."""
        if found.kind is not resources.TRAINJOB:
            return None
        with translated(f"read the runtime of {found.ref.name}"):
            try:
                return job_objects.runtime(self._api, found.job)
            except ApiError as error:
                if error.status == 403:  # a look names it
                    return None
                raise

    def log_sources(self, found: Found) -> tuple[PodLogSource, ...]:
        """Return the pods of all attempts whose logs can be read."""
        from mpijob.backends.kubernetes.logs import pod_logs
        from mpijob.backends.kubernetes.status import derive_state

        voices: list[PodLogSource] = []
        for job in (*found.earlier, found.job):
            family, tagged = derive_state.speech(job)
            with translated(f"find the pods of {found.ref.name}"):
                pods = job_objects.pods(self._api, found.kind, job)
            voices += pod_logs.log_sources(
                pods,
                attempt=job_objects.attempt_of(job),
                family=family,
                tagged=tagged,
                index_of=derive_state.worker_index,
            )
        return tuple(voices)

    def timeline_of(self, ref: JobRef, known: EarlierEvents | None = None) -> Timeline:
        """Return what happened to the job, in order, and whether it has ended.

        `known` keeps what happened to attempts that are over, for whoever asks again and again.
        """
        from mpijob.backends.kubernetes.status import timeline

        look, known = self.read(ref), {} if known is None else known
        for found in look.found.attempts:
            if (attempt := job_objects.attempt_of(found.job)) not in known:
                past = self.attempt_of(found)
                known[attempt] = timeline.events(past.seen, past.state, past.proved)
        earlier = [event for _, told in sorted(known.items()) for event in told]
        told = [*earlier, *timeline.events(look.seen, look.own, look.proved)]
        return Timeline(tuple(timeline.numbered(told)), look.state.phase.final)


def _with_progress(seen: Objects, log: str | None) -> Objects:
    """Tell of a job that is being pre-empted how far it came; its launcher's log goes with its pods."""
    if seen.workload is None or not log:
        return seen
    from mpijob.formats.status import kueue_workload

    if kueue_workload.preempted(seen.workload) is None:
        return seen
    from mpijob.observation.metrics import training

    return msgspec.structs.replace(seen, reached=training.reached(log.encode().splitlines()))
