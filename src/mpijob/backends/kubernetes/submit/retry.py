"""Trying a failed job again, as often as it says: by the cluster's controller, or by a user's explicit command.

A further attempt is an object of its own (`name-a2`) with the same uid, so two that would start it start it once:
the API server lets one of them win. Its objects are copies of the judged ones of the attempt before
(`kubernetes/next_attempt`), created in the same namespace under the owner's own identity. Until the next attempt is
there, the job is told as queued.
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

# What trying again cannot mend.
_FINAL = (Reason.DEADLINE_EXCEEDED.value, Reason.CANCELLED.value, Reason.DEPENDENCY_FAILED.value)


def may_follow(state: JobState, job: MPIJob) -> bool:
    """Whether a failed attempt is not the job's last."""
    if state.phase is not Phase.FAILED or state.attempt > job.retry.limit or state.reason in _FINAL:
        return False
    return retry_cause.wanted(state, job.retry)


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
    """Return when the next attempt starts."""
    return (state.finished or 0.0) + job.retry.delay_seconds(state.attempt)


def start(
    api: Api,
    found: Found,
    runtime: Mapping[str, Any] | None,
    workload: Mapping[str, Any] | None = None,
) -> None:
    """Start the attempt after the newest one, unless somebody else has; `api` acts as the job's owner."""
    attempt = attempt_of(found.job) + 1
    own = runtime is not None and runtime["metadata"]["name"] == found.name
    documents = next_attempt.documents(
        found.job,
        runtime if own else None,
        first=found.first,
        attempt=attempt,
        workload=workload,
    )
    _tell(documents[-1]["metadata"], attempt, api.now())
    protected = _protect(api, found, attempt)
    try:
        made = create_objects.again(api, documents, found.ref.uid)
    except create_objects.Taken:
        return
    owner_references.share(api, made, [*protected, *_shared(found, runtime)])


def _protect(api: Api, found: Found, attempt: int) -> list[str]:
    """Give the attempt the NetworkPolicy of the one before; the controller makes it where the owner may not."""
    namespace, collection = found.ref.namespace, resources.NETWORK_POLICY.path(found.ref.namespace)
    try:
        before = api.find(resources.NETWORK_POLICY.path(namespace, found.name + well_known.NETWORK_SUFFIX))
        if before is None:
            return []
        policy = next_attempt.network_policy(before, found.name, first=found.first, attempt=attempt)
        api.create(collection, policy, accept=PARTIAL)
    except ApiError as error:
        if error.status == 403:
            return []
        if error.status != 409:
            raise
    return [resources.NETWORK_POLICY.path(namespace, policy["metadata"]["name"])]


def _tell(metadata: Document, attempt: int, now: float) -> None:
    act = UserAction(now, user_actions.RETRYING, f"attempt {attempt} starts")
    metadata.setdefault("annotations", {})[well_known.ACTS_ANNOTATION] = user_actions.written([act])


def _shared(found: Found, runtime: Mapping[str, Any] | None) -> list[str]:
    """Return the paths of what all attempts share, where a job has it: it stays as long as one of them does."""
    namespace = found.ref.namespace
    code = code_archive.names_in((found.job, runtime))
    return [
        *(resources.CONFIG_MAP.path(namespace, name) for name in code),
        resources.CONFIG_MAP.path(namespace, found.first + well_known.PROFILER_SUFFIX),
        resources.SECRET.path(namespace, found.first + well_known.SECRETS_SUFFIX),
    ]
