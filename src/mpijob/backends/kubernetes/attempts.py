"""Trying a failed job again, as often as it says, by whoever waits for it and by a controller.

A further attempt is an object of its own (`name-a2`) with the same uid, so two clients that wait for one job
start it once: the API server lets one of them win. Until the next attempt is there, the job is told as queued.
"""

from __future__ import annotations

import msgspec

from mpijob.backends.kubernetes import kinds, owning, planner, submitting
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.gathering import Found, attempt_of
from mpijob.backends.kubernetes.surroundings import Surroundings
from mpijob.dialects import acts, terms
from mpijob.dialects.acts import Act
from mpijob.model import JobState, MPIJob, Phase
from mpijob.observation.phase import Reason

# What trying again cannot mend.
_FINAL = (Reason.DEADLINE_EXCEEDED.value, Reason.CANCELLED.value, Reason.DEPENDENCY_FAILED.value)


def may_follow(state: JobState, job: MPIJob) -> bool:
    """Whether a failed attempt is not the job's last."""
    tried = state.attempt
    return state.phase is Phase.FAILED and tried <= job.retry.limit and state.reason not in _FINAL


def waiting(state: JobState, job: MPIJob, now: float) -> JobState:
    """Return the state of a job between two attempts."""
    left = max(0.0, due(state, job) - now)
    message = (
        f"attempt {state.attempt} failed ({state.message}); the next one starts in {left:.0f} s, "
        "by whoever waits for the job, or by the cluster's controller"
    )
    return msgspec.structs.replace(
        state, phase=Phase.QUEUED, reason=Reason.BACKING_OFF.value, message=message, finished=None
    )


def due(state: JobState, job: MPIJob) -> float:
    """Return when the next attempt starts."""
    return (state.finished or 0.0) + job.retry.delay_seconds(state.attempt)


def start(api: Api, found: Found, job: MPIJob, around: Surroundings) -> None:
    """Start the attempt after the newest one, unless somebody else has."""
    attempt = attempt_of(found.job) + 1
    plan = planner.next_attempt(job, found.ref.uid, found.first, attempt, around)
    _tell(plan.documents[-1]["metadata"], attempt, api.now())
    try:
        made = submitting.again(api, plan)
    except submitting.Taken:
        return
    owning.share(api, made, _shared(job, found.ref.namespace, found.first))


def _tell(metadata: terms.Document, attempt: int, now: float) -> None:
    act = Act(now, acts.RETRYING, f"attempt {attempt} begins")
    metadata.setdefault("annotations", {})[terms.ACTS_ANNOTATION] = acts.written([act])


def _shared(job: MPIJob, namespace: str, first: str) -> list[str]:
    """Return the paths of what all attempts share: it stays as long as one of them does."""
    paths = []
    if job.code.path or job.code.files:
        paths.append(kinds.CONFIG_MAP.path(namespace, first + terms.CODE_SUFFIX))
    if any(one.source.startswith(("env:", "file:")) for one in job.secrets):
        paths.append(kinds.SECRET.path(namespace, first + terms.SECRETS_SUFFIX))
    return paths
