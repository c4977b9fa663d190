"""What a job needs and no engine does by itself: a further attempt, its start after other jobs, its end if it
cannot start.

Kubernetes retries pods that cannot start without end, so a job ends when its workers did not start in the
time that it allows. Only the controller and explicit commands (`mpijob run`, `mpijob controller`) reconcile:
reading, watching and waiting write nothing. Pods are started with the identity of the job's owner, so that
the API server, admission and policies check it as they checked the first attempt. Jobs that were not created
by mpijob are not changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from mpijob.backends.kubernetes.client.api_errors import ApiError, translate, translated
from mpijob.backends.kubernetes.submit import owner_references
from mpijob.formats.status import job_conditions
from mpijob.model import JobRef, Phase
from mpijob.model.spec import dependencies
from mpijob.model.spec.dependencies import Dependency
from mpijob.observation.state.phase import Reason

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.status.derive_state import Document
    from mpijob.backends.kubernetes.status.job_reader import JobReader, JobSnapshot
    from mpijob.model import JobState


# The launcher of a job that is being ended is deleted first; the rest looks as if it had never started.
_ENDING = (Reason.CANCELLING.value, Reason.DEADLINE_EXCEEDED.value)


class Reconciler:
    """Reconciles jobs through one API client.

    `longest` returns the start timeout of a namespace's limits. `as_owner` provides the client that starts
    pods of a job, by default `api`.
    """

    def __init__(
        self,
        api: Api,
        reader: JobReader,
        longest: Callable[[str], float] = lambda namespace: math.inf,
        as_owner: Callable[[Document], AbstractContextManager[Api]] | None = None,
    ) -> None:
        self._namespace_timeout = longest
        self._api = api
        self._reader = reader
        self._as_owner = as_owner or (lambda job: nullcontext(api))
        self._timeouts: dict[JobRef, float] = {}
        self._forbidden: set[JobRef] = set()

    def reconcile(self, state: JobState) -> None:
        """Do what the job needs now, if anything."""
        if state.reason == Reason.BACKING_OFF.value:
            self._retry(state.ref)
        elif state.reason == Reason.WAITING_FOR_JOBS.value:
            self._release(state.ref)
        elif state.phase is Phase.PENDING and state.reason not in _ENDING and self._is_overdue(state):
            self._end(state)

    def forget(self, ref: JobRef) -> None:
        self._timeouts.pop(ref, None)
        self._forbidden.discard(ref)

    def repair_owner(self, snapshot: JobSnapshot) -> None:
        """Set the runtime's owner reference, if the submit that created both was killed before it did."""
        if snapshot.seen.runtime is not None and not snapshot.state.phase.final:
            owner_references.mend(self._api, snapshot.found.job, snapshot.seen.runtime)

    def _retry(self, ref: JobRef) -> None:
        from mpijob.backends.kubernetes.submit import retry

        snapshot = self._reader.attempt(ref)
        job = self._reader.spec(snapshot.found, snapshot.seen.runtime)
        if retry.may_follow(snapshot.state, job) and self._api.now() >= retry.due(snapshot.state, job):
            with translated(f"retry job {job.name}"), self._as_owner(snapshot.found.job) as api:
                retry.start(api, snapshot.found, snapshot.seen.runtime, snapshot.seen.workload)

    def _release(self, ref: JobRef) -> None:
        from mpijob.backends.kubernetes.actions import patches
        from mpijob.formats.kubernetes.metadata import controller_notes

        if ref in self._forbidden:
            return
        snapshot = self._reader.attempt(ref)
        note = controller_notes.read(snapshot.found.job)
        if note is None:
            return
        waits, finding = dependencies.judge(ref.name, [*self._dependencies(ref.namespace, note.jobs)])
        try:
            if finding is not None:
                reason = Reason.DEPENDENCY_FAILED.value
                patches.end_early(self._api, snapshot.found, snapshot.seen, reason, finding.message)
            elif not waits:
                with self._as_owner(snapshot.found.job) as api:
                    api.patch(snapshot.found.path, controller_notes.release(snapshot.found.job, note))
        except ApiError as error:
            if error.status != 403:
                raise translate(error, doing=f"start job {ref.name}") from error
            # Users who may create jobs but not change them leave it to the controller.
            self._forbidden.add(ref)

    def _dependencies(self, namespace: str, jobs: Mapping[str, str]) -> Iterator[Dependency]:
        """Yield the states of the jobs in `after`."""
        for entry, uid in jobs.items():
            wanted = dependencies.parsed(entry)
            ref = JobRef(namespace, wanted.name, uid)
            yield Dependency.of(ref, self._reader.state_of(ref), wanted.end)

    def _is_overdue(self, state: JobState) -> bool:
        """Return whether the start timeout has passed since the workers were created."""
        if state.ref not in self._timeouts:
            found = self._reader.find(state.ref)
            ours = job_conditions.is_ours(found.job)
            job = self._reader.spec(found, self._reader.runtime(found)) if ours else None
            # Cached: the specification cannot change.
            self._timeouts[state.ref] = math.inf if job is None else job.gang_timeout_seconds
        return self._api.now() - (state.started or state.created) >= self._timeout_seconds(state.ref)

    def _timeout_seconds(self, ref: JobRef) -> float:
        """Return the smaller of the job's own start timeout and that of its namespace."""
        return min(self._timeouts[ref], self._namespace_timeout(ref.namespace))

    def _end(self, state: JobState) -> None:
        from mpijob.backends.kubernetes.actions import patches

        snapshot = self._reader.attempt(state.ref)
        # A worker may have started since the state was read.
        if snapshot.state.phase is not Phase.PENDING:
            return
        with translated(f"end job {state.ref.name}, which cannot start"):
            patches.end_early(self._api, snapshot.found, snapshot.seen, *self._cause(snapshot.state))

    def _cause(self, state: JobState) -> tuple[str, str]:
        """Return what kept the job from starting, or that it took too long."""
        if state.findings:
            return state.reason, state.message
        seconds = self._timeout_seconds(state.ref)
        return Reason.GANG_TIMEOUT.value, f"not all workers had started after {seconds:g} s: {state.message}"
