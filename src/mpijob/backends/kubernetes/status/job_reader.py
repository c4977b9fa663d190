"""Reads a job: finds its objects, reads everything that belongs to it, and derives its state.

That takes a few concurrent requests, and the beginning and end of the launcher's log.
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

# Times of the cluster are whole seconds, so this includes rounding.
_SETTLE_SECONDS = 3.0


class JobSnapshot(NamedTuple):
    """A job's object, its state, the objects that it was derived from, and when its world was proved.

    `ended` is the attempt's last state while the job waits for its next attempt.
    """

    found: Found
    state: JobState
    seen: Objects
    proved: float | None
    ended: JobState | None = None

    @property
    def own(self) -> JobState:
        """The state of the newest attempt itself, also while the job waits for the next one."""
        return self.ended or self.state


# By attempt.
EarlierEvents = dict[int, "list[Event]"]


class Timeline(NamedTuple):
    """The events of a job in order, and whether it has ended."""

    events: tuple[Event, ...]
    over: bool


class JobReader:
    """Reads jobs through one API client."""

    def __init__(
        self,
        api: Api,
        rules: str = "",
        events: job_objects.EventsOf | None = None,
        me: Callable[[], str] = lambda: "",
    ) -> None:
        """`rules` is the path of the site's rules; `me` returns the user's name, for jobs of one name."""
        self._api, self._me = api, me
        self._rules = rules
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
        """Return a snapshot of the job, which is Queued between two attempts; raise NotFound."""
        snapshot = self.attempt(ref)
        if snapshot.state.phase is not Phase.FAILED:
            return snapshot
        from mpijob.backends.kubernetes.submit import retry

        job = self.spec(snapshot.found, snapshot.seen.runtime)
        if not retry.may_follow(snapshot.state, job):
            return snapshot
        return snapshot._replace(
            state=retry.waiting(snapshot.state, job, self._api.now()), ended=snapshot.state
        )

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return the last state of each attempt whose objects still exist, and the current one."""
        snapshot = self.read(ref)
        earlier = [self.attempt_of(found).state for found in snapshot.found.attempts]
        if snapshot.ended is None:
            return (*earlier, snapshot.state)
        return (
            *earlier,
            snapshot.ended,
            msgspec.structs.replace(snapshot.state, attempt=snapshot.state.attempt + 1),
        )

    def attempt(self, ref: JobRef) -> JobSnapshot:
        """Return a snapshot of the newest attempt, however it ended; raise NotFound."""
        snapshot = self._read_newest(ref)
        if not self._lacks_cause(snapshot):
            return snapshot
        from mpijob.backends.kubernetes.actions import patches

        def has_cause() -> bool:
            nonlocal snapshot
            snapshot = self._read_newest(ref)
            return not self._lacks_cause(snapshot)

        patches.until(has_cause, _SETTLE_SECONDS)
        return snapshot

    def _lacks_cause(self, snapshot: JobSnapshot) -> bool:
        # The kubelet reports why it ended a deleted pod last, when the job has failed already and the pod is gone.
        state = snapshot.state
        if state.phase is not Phase.FAILED or self._api.now() - (state.finished or 0.0) >= _SETTLE_SECONDS:
            return False
        from mpijob.observation.state.phase import Reason

        return state.reason == Reason.LAUNCHER_UNACCOUNTED

    def _read_newest(self, ref: JobRef) -> JobSnapshot:
        return self.attempt_of(self.find(ref))

    def attempt_of(self, found: Found) -> JobSnapshot:
        """Return a snapshot of one attempt."""
        # Imported late for a quick start: a list of jobs has its own way.
        from mpijob.backends.kubernetes.status import derive_state, launcher_log

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
        """Return the states of the jobs in `after`: of the newest of each name."""
        refs = [JobRef(job.namespace, name) for name in names(job.after)]
        return of_entries(job.after, ((ref, self.state_of(ref)) for ref in refs))

    def state_of(self, ref: JobRef) -> JobState | None:
        """Return a job's state; None if it does not exist."""
        try:
            return self.read(ref).state
        except NotFound:
            return None

    def spec(self, found: Found, runtime: Document | None) -> MPIJob:
        """Return the job's specification from the engine's objects."""
        from mpijob.formats.kubernetes import mpijob, trainjob
        from mpijob.formats.status import legacy_jobs

        if found.kind is resources.MPIJOB:
            return mpijob.read((found.job,)).job
        if found.kind is not resources.TRAINJOB:
            return legacy_jobs.read(found.job)
        return trainjob.read((found.job, *((runtime,) if runtime else ()))).job

    def find_spec(self, ref: JobRef) -> MPIJob:
        """Return the specification of the newest job with this name."""
        found = self.find(ref)
        return self.spec(found, self.runtime(found))

    def runtime(self, found: Found) -> Document | None:
        """Return the runtime that the job refers to; None if it has none or it may not be read."""
        if found.kind is not resources.TRAINJOB:
            return None
        with translated(f"read the runtime of {found.ref.name}"):
            try:
                return job_objects.runtime(self._api, found.job)
            except ApiError as error:
                # A snapshot of the job reports it.
                if error.status == 403:
                    return None
                raise

    def log_sources(self, found: Found) -> tuple[PodLogSource, ...]:
        """Return the pods of all attempts whose logs can be read."""
        from mpijob.backends.kubernetes.logs import pod_logs
        from mpijob.backends.kubernetes.status import derive_state

        sources: list[PodLogSource] = []
        for job in (*found.earlier, found.job):
            family, tagged = derive_state.speech(job)
            with translated(f"find the pods of {found.ref.name}"):
                pods = job_objects.pods(self._api, found.kind, job)
            sources += pod_logs.log_sources(
                pods,
                attempt=job_objects.attempt_of(job),
                family=family,
                tagged=tagged,
                index_of=derive_state.worker_index,
            )
        return tuple(sources)

    def timeline_of(self, ref: JobRef, known: EarlierEvents | None = None) -> Timeline:
        """Return the job's events in order, and whether it has ended.

        `known` caches the events of earlier attempts between calls.
        """
        from mpijob.backends.kubernetes.status import timeline

        snapshot, known = self.read(ref), {} if known is None else known
        for found in snapshot.found.attempts:
            if (attempt := job_objects.attempt_of(found.job)) not in known:
                past = self.attempt_of(found)
                known[attempt] = timeline.events(past.seen, past.state, past.proved)
        earlier = [event for _, has_cause in sorted(known.items()) for event in has_cause]
        has_cause = [*earlier, *timeline.events(snapshot.seen, snapshot.own, snapshot.proved)]
        return Timeline(tuple(timeline.numbered(has_cause)), snapshot.state.phase.final)


def _with_progress(seen: Objects, log: str | None) -> Objects:
    # How far a pre-empted job came is read while it is being pre-empted: its launcher's log is deleted with its pod.
    if seen.workload is None or not log:
        return seen
    from mpijob.formats.status import kueue_workload

    if kueue_workload.preempted(seen.workload) is None:
        return seen
    from mpijob.observation.metrics import training

    return msgspec.structs.replace(seen, reached=training.progress_text(log.encode().splitlines()))
