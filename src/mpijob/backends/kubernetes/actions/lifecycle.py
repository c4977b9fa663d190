"""What users do to existing jobs: check it, write it to the job's objects, wait for the result.

The changes themselves are in `patches`.
"""

from __future__ import annotations

from collections.abc import Callable

from mpijob.backends.common_errors import refuse_resuming, refuse_scaling, refuse_suspending
from mpijob.backends.kubernetes.actions import patches
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import translated
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.status.derive_state import Document
from mpijob.backends.kubernetes.status.job_objects import Found
from mpijob.backends.kubernetes.status.job_reader import JobReader
from mpijob.errors import BackendError, NotFound
from mpijob.formats.kubernetes.metadata import identity
from mpijob.model import JobRef, JobState, Phase

_REMOVAL_SECONDS = 60.0
_SETTLE_SECONDS = 30.0
_ENDED = frozenset({Phase.CANCELLED, Phase.SUCCEEDED, Phase.FAILED})


class LifecycleActions:
    """The actions of one user; `by` returns the user's name, for the note on the job."""

    def __init__(self, api: Api, reader: JobReader, by: Callable[[], str]) -> None:
        self._api, self._reader = api, reader
        self._by = by

    def cancel(self, ref: JobRef, grace_seconds: float | None) -> JobState:
        found, state, seen, *_ = self._reader.read(ref)
        if state.phase.final:
            return state
        grace = self._grace_seconds(found.ref) if grace_seconds is None else grace_seconds
        with translated(f"cancel job {ref.name}"):
            patches.cancel(self._api, found, seen, grace, self._by())
        return self._wait_for(found.ref, _ENDED, grace)

    def suspend(self, ref: JobRef) -> JobState:
        found, state, seen, *_ = self._reader.read(ref)
        if state.phase is Phase.SUSPENDED:
            return state
        refuse_suspending(state)
        with translated(f"suspend job {ref.name}"):
            patches.suspend(self._api, found, seen, self._by())
        return self._wait_for(found.ref, frozenset({Phase.SUSPENDED}), self._grace_seconds(found.ref))

    def resume(self, ref: JobRef) -> JobState:
        found, state, seen, *_ = self._reader.read(ref)
        refuse_resuming(state)
        with translated(f"resume job {ref.name}"):
            patches.resume(self._api, found, seen, self._by())
        return self._reader.read(found.ref).state

    def scale(self, ref: JobRef, workers: int) -> JobState:
        """Give an elastic job another number of workers; the engine decides which ones are added and removed."""
        found, state, seen, *_ = self._reader.read(ref)
        patches.refuse_scaling(found, workers)
        refuse_scaling(state, self._reader.spec(found, seen.runtime), workers)
        if workers == state.workers_wanted:
            return state
        with translated(f"scale job {ref.name}"):
            patches.scale(self._api, found, state.workers_wanted, workers, self._by())
        return self._reader.read(found.ref).state

    def delete(self, ref: JobRef, grace_seconds: float | None) -> None:
        """End the job if needed and delete all its objects; by name, all jobs of that name and owner."""
        found: Found | None = self._reader.find(ref)
        # Another user's job may have the same name label.
        owner = identity.owner_of(found.job["metadata"]) if found is not None else ""
        while found is not None and identity.owner_of(found.job["metadata"]) == owner:
            self._delete_objects(found, grace_seconds)
            found = None if ref.uid else self._next(ref)

    def _next(self, ref: JobRef) -> Found | None:
        try:
            return self._reader.find(ref)
        except NotFound:
            return None

    def _delete_objects(self, found: Found, grace_seconds: float | None) -> None:
        jobs: tuple[Document, ...] = (*found.earlier, found.job)

        def gone() -> bool:
            return not any(job_objects.remains(self._api, found.kind, job) for job in jobs)

        with translated(f"delete job {found.ref.name}"):
            pods = [pod for job in jobs for pod in job_objects.pods(self._api, found.kind, job)]
            patches.delete(self._api, found, jobs)
            if grace_seconds is not None:
                patches.delete_pods(self._api, pods, grace_seconds=int(grace_seconds))
            if not patches.until(gone, _REMOVAL_SECONDS):
                raise BackendError(
                    f"{found.ref} is being deleted, but objects still exist after {_REMOVAL_SECONDS:g} s",
                    hint=(
                        f"find the finalizer that blocks it: kubectl -n {found.ref.namespace} get "
                        f"{found.kind.plural},pods"
                    ),
                )

    def _grace_seconds(self, ref: JobRef) -> float:
        return self._reader.find_spec(ref).grace_seconds

    def _wait_for(self, ref: JobRef, phases: frozenset[Phase], grace_seconds: float) -> JobState:
        """Return the state when the job is in one of the phases, or after a timeout."""
        state = self._reader.read(ref).state

        def there() -> bool:
            nonlocal state
            state = self._reader.read(ref).state
            return state.phase in phases

        if state.phase not in phases:
            patches.until(there, grace_seconds + _SETTLE_SECONDS)
        return state
