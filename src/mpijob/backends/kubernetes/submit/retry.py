"""Retries a failed job as often as it says: by the cluster's controller, or by a user's explicit command.

A further attempt is an object of its own (`name-a2`) with the same uid, so that of two clients that start it
one wins at the API server. Its objects are copies of those of the attempt before (`kubernetes/next_attempt`),
created with the identity of the job's owner. Until it exists, the job is shown as Queued.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import PARTIAL, Api, ApiError
from mpijob.backends.kubernetes.status.job_objects import Found, attempt_of
from mpijob.backends.kubernetes.submit import code_archive, create_objects, owner_references
from mpijob.formats.kubernetes import next_attempt
from mpijob.formats.kubernetes.metadata import user_actions, well_known
from mpijob.formats.kubernetes.metadata.user_actions import UserAction
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import JobState, MPIJob, Phase
from mpijob.observation.state import retry_cause
from mpijob.observation.state.phase import Reason

# Reasons that a retry cannot fix.
_FINAL = (Reason.DEADLINE_EXCEEDED.value, Reason.CANCELLED.value, Reason.DEPENDENCY_FAILED.value)


def may_follow(state: JobState, job: MPIJob) -> bool:
    """Return whether a further attempt may follow a failed one."""
    if state.phase is not Phase.FAILED or state.attempt > job.retry.limit or state.reason in _FINAL:
        return False
    return retry_cause.is_retryable(state, job.retry)


def waiting(state: JobState, job: MPIJob, now: float) -> JobState:
    """Return the state of a job between two attempts."""
    left = max(0.0, due(state, job) - now)
    message = (
        f"attempt {state.attempt} failed ({state.message}); the next one is due in {left:.0f} s; "
        "the cluster's controller, `mpijob run` or `mpijob controller` starts it"
    )
    return msgspec.structs.replace(
        state, phase=Phase.QUEUED, reason=Reason.BACKING_OFF.value, message=message, finished=None
    )


def due(state: JobState, job: MPIJob) -> float:
    """Return the time at which the next attempt starts."""
    return (state.finished or 0.0) + job.retry.delay_seconds(state.attempt)


def start(
    api: Api,
    found: Found,
    runtime: Mapping[str, Any] | None,
    workload: Mapping[str, Any] | None = None,
) -> None:
    """Start the next attempt, unless it exists; `api` acts as the job's owner."""
    attempt = attempt_of(found.job) + 1
    has_own_runtime = runtime is not None and runtime["metadata"]["name"] == found.name
    documents = next_attempt.documents(
        found.job,
        runtime if has_own_runtime else None,
        first=found.first,
        attempt=attempt,
        workload=workload,
    )
    _note_retry(documents[-1]["metadata"], attempt, api.now())
    protected = _copy_network_policy(api, found, attempt)
    try:
        created = create_objects.create_attempt(api, documents, found.ref.uid)
    except create_objects.Taken:
        return
    owner_references.share(api, created, [*protected, *_shared_paths(found, runtime)])


def _copy_network_policy(api: Api, found: Found, attempt: int) -> list[str]:
    """Return the path of the attempt's NetworkPolicy, a copy of the one before."""
    namespace, collection = found.ref.namespace, resources.NETWORK_POLICY.path(found.ref.namespace)
    try:
        before = api.find(resources.NETWORK_POLICY.path(namespace, found.name + well_known.NETWORK_SUFFIX))
        if before is None:
            return []
        policy = next_attempt.network_policy(before, found.name, first=found.first, attempt=attempt)
        api.create(collection, policy, accept=PARTIAL)
    except ApiError as error:
        # The controller creates it for owners who may not.
        if error.status == 403:
            return []
        if error.status != 409:
            raise
    return [resources.NETWORK_POLICY.path(namespace, policy["metadata"]["name"])]


def _note_retry(metadata: Document, attempt: int, now: float) -> None:
    act = UserAction(now, user_actions.RETRYING, f"attempt {attempt} starts")
    metadata.setdefault("annotations", {})[well_known.ACTS_ANNOTATION] = user_actions.written([act])


def _shared_paths(found: Found, runtime: Mapping[str, Any] | None) -> list[str]:
    """Return the paths of objects that all attempts share; they are deleted with the last one."""
    namespace = found.ref.namespace
    code = code_archive.names_in((found.job, runtime))
    return [
        *(resources.CONFIG_MAP.path(namespace, name) for name in code),
        resources.CONFIG_MAP.path(namespace, found.first + well_known.PROFILER_SUFFIX),
        resources.SECRET.path(namespace, found.first + well_known.SECRETS_SUFFIX),
    ]
