"""What a job needs and no engine does by itself: a next attempt, its start after other jobs, or its end.

A job that waits for others starts when they have succeeded. A failed job is tried again as often as it says. One
whose pods cannot start stays pending for ever, because Kubernetes goes on trying: after the time that the job gives
its workers to start, it is ended with the reason.

This is done by the cluster's controller and by explicit commands alone (`mpijob run`, `mpijob controller`): looking
at a job, waiting for it and following its log write nothing. What starts pods is done under the identity of the
job's owner, so that the API server, admission and every policy judge it as they judged the first attempt. Other
people's jobs are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from mpijob.backends.kubernetes.client.api_errors import ApiError, telling, translate
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


# Of a job that is being ended the launcher goes first; what is left looks as if it had never started.
_ENDING = (Reason.CANCELLING.value, Reason.DEADLINE_EXCEEDED.value)


class Reconciler:
    """Tends jobs through one API client; it remembers how long each may take to start.

    `as_owner` gives the client that starts what belongs to a job: by default the caller's own.
    """

    def __init__(
        self,
        api: Api,
        reader: JobReader,
        longest: Callable[[str], float] = lambda namespace: math.inf,
        as_owner: Callable[[Document], AbstractContextManager[Api]] | None = None,
    ) -> None:
        self._longest = longest  # that a namespace lets its gangs take, by its name
        self._api = api
        self._reader = reader
        self._as_owner = as_owner or (lambda job: nullcontext(api))
        self._patience: dict[JobRef, float] = {}
        self._others: set[JobRef] = set()

    def tend(self, state: JobState) -> None:
        """Do what the job needs now, if anything."""
        if state.reason == Reason.BACKING_OFF.value:
            self._try_again(state.ref)
        elif state.reason == Reason.WAITING_FOR_JOBS.value:
            self._release(state.ref)
        elif state.phase is Phase.PENDING and state.reason not in _ENDING and self._overdue(state):
            self._give_up(state)

    def forget(self, ref: JobRef) -> None:
        """Remember nothing of a job that is gone."""
        self._patience.pop(ref, None)
        self._others.discard(ref)

    def mend(self, look: JobSnapshot) -> None:
        """Let the job own its runtime where whoever created both was stopped before saying so."""
        if look.seen.runtime is not None and not look.state.phase.final:
            owner_references.mend(self._api, look.found.job, look.seen.runtime)

    def _try_again(self, ref: JobRef) -> None:
        from mpijob.backends.kubernetes.submit import retry

        look = self._reader.attempt(ref)
        job = self._reader.spec(look.found, look.seen.runtime)
        if retry.may_follow(look.state, job) and self._api.now() >= retry.due(look.state, job):
            with telling(f"retry job {job.name}"), self._as_owner(look.found.job) as api:
                retry.start(api, look.found, look.seen.runtime, look.seen.workload)

    def _release(self, ref: JobRef) -> None:
        """Let a job start whose others have succeeded; end it when one of them will not."""
        from mpijob.backends.kubernetes.actions import patches
        from mpijob.formats.kubernetes.metadata import controller_notes

        if ref in self._others:
            return
        look = self._reader.attempt(ref)
        note = controller_notes.read(look.found.job)
        if note is None:
            return
        waits, finding = dependencies.judge(ref.name, [*self._standing(ref.namespace, note.jobs)])
        try:
            if finding is not None:
                reason = Reason.DEPENDENCY_FAILED.value
                patches.give_up(self._api, look.found, look.seen, reason, finding.message)
            elif not waits:
                with self._as_owner(look.found.job) as api:
                    api.patch(look.found.path, controller_notes.release(look.found.job, note))
        except ApiError as error:
            if error.status != 403:
                raise translate(error, doing=f"start job {ref.name}") from error
            self._others.add(ref)  # who may create jobs and not change them leaves it to the controller

    def _standing(self, namespace: str, jobs: Mapping[str, str]) -> Iterator[Dependency]:
        """Yield where the jobs stand that another waits for, by the entries of its `after`."""
        for entry, uid in jobs.items():
            wanted = dependencies.parsed(entry)
            ref = JobRef(namespace, wanted.name, uid)
            yield Dependency.of(ref, self._reader.state_of(ref), wanted.end)

    def _overdue(self, state: JobState) -> bool:
        """Whether the workers had all the time that the job gives them, counted from when they were made."""
        if state.ref not in self._patience:
            found = self._reader.find(state.ref)
            ours = job_conditions.is_ours(found.job)
            job = self._reader.spec(found, self._reader.runtime(found)) if ours else None
            self._patience[state.ref] = math.inf if job is None else job.gang_timeout_seconds
        return self._api.now() - (state.started or state.created) >= self._allowed(state.ref)

    def _allowed(self, ref: JobRef) -> float:
        """Return how many seconds the workers may take: the job's own, or what its namespace allows."""
        return min(self._patience[ref], self._longest(ref.namespace))

    def _give_up(self, state: JobState) -> None:
        from mpijob.backends.kubernetes.actions import patches

        look = self._reader.attempt(state.ref)
        if look.state.phase is not Phase.PENDING:
            return
        with telling(f"end job {state.ref.name}, which cannot start"):
            patches.give_up(self._api, look.found, look.seen, *self._why(look.state))

    def _why(self, state: JobState) -> tuple[str, str]:
        """Return what kept the job from starting, or that it took too long."""
        if state.findings:
            return state.reason, state.message
        seconds = self._allowed(state.ref)
        return Reason.GANG_TIMEOUT.value, f"not all workers had started after {seconds:g} s: {state.message}"
