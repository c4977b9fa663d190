"""Decides what time limits and a namespace's limits require for a job: a warning, its end, its deletion.

The controller calls these functions with a state and the limits, and acts on the result. `Progress` is what
it stores on the job, so that it continues there after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mpijob.errors import Finding, Severity
from mpijob.model import JobState, Phase, Sample
from mpijob.model.platform.governance import Idle, NamespaceLimits
from mpijob.observation.health.health_sample import span
from mpijob.observation.state.phase import Reason

_ENDING = (Reason.CANCELLING.value, Reason.DEADLINE_EXCEEDED.value)
_NEAR_SHARE = 0.9
# A rank that only waits uses about this much.
_BUSY_CORES = 0.05


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last published transition: phase, time and transition count."""

    phase: str = ""
    since: float = 0.0
    number: int = 0


def next_transition(before: Progress, state: JobState, now: float) -> Progress | None:
    """Return the next transition, if there is one. A final phase is the last, whatever is observed later."""
    if before.phase == state.phase.value or (before.phase and Phase(before.phase).final):
        return None
    if before.phase and state.reason in _ENDING and not state.phase.final:
        # The pods are removed one by one; the remaining ones show no phase of the job.
        return None
    if before.phase == Phase.INITIALIZING.value and state.phase is Phase.PENDING:
        # One worker became unready during the start: that is no step back.
        return None
    since = max(_since(state) or now, before.since)
    return Progress(state.phase.value, since, before.number + 1)


def transition_message(before: Progress, after: Progress, state: JobState) -> str:
    """Return the transition as a message: the new phase, and how long the one before it lasted."""
    parts = [state.message.rstrip(".") or state.phase.value]
    if before.phase:
        parts.append(f"after {span(after.since - before.since)} {before.phase}")
    if state.phase.final and state.finished is not None:
        parts.append(_durations(state, state.finished))
    return "; ".join(parts)


def _since(state: JobState) -> float | None:
    match state.phase:
        case Phase.QUEUED:
            return state.queued or state.created
        case Phase.PENDING:
            return state.started or state.created
        case Phase.RUNNING:
            return state.running
        case Phase.SUCCEEDED | Phase.FAILED | Phase.CANCELLED:
            return state.finished
        case _:
            return None


def _durations(state: JobState, finished: float) -> str:
    started = state.running or state.started
    ran = f"ran {span(finished - started)}, " if started else "never ran, "
    return f"{ran}{span(finished - state.created)} from submit to end"


# -- by the clock ------------------------------------------------------------------------------------
def overrun_message(state: JobState, limits: NamespaceLimits, now: float) -> str:
    """Return why a job must end now because of its namespace's longest duration, else ""."""
    longest, started = limits.max_duration_seconds, state.running or state.started
    if longest is None or started is None or not state.phase.active or now - started < longest:
        return ""
    return f"the job ran {span(now - started)}; namespace {state.ref.namespace} allows {span(longest)}"


def deadline_alarm(
    state: JobState, own_seconds: float | None, limits: NamespaceLimits, now: float
) -> Finding | None:
    """Return a warning for a job that has used nine tenths of its time."""
    durations = [limit for limit in (own_seconds, limits.max_duration_seconds) if limit is not None]
    started = state.running or state.started
    if not durations or started is None or state.phase is not Phase.RUNNING:
        return None
    longest, used = min(durations), now - started
    if used < _NEAR_SHARE * longest:
        return None
    return Finding(
        code="DEADLINE_NEAR",
        message=f"less than a tenth is left of the {span(longest)} that the job may run",
        hint="see that it writes a checkpoint; a longer time is deadline_seconds, within the namespace's limit",
        severity=Severity.WARNING,
    )


def kept_seconds(own_seconds: float | None, limits: NamespaceLimits) -> float | None:
    """Return how long a finished job's objects are kept: the shorter of its `ttl_seconds` and its namespace's
    limit.
    """
    longest = limits.retention.finished_jobs_seconds if limits.retention else None
    return min((limit for limit in (own_seconds, longest) if limit is not None), default=None)


def is_expired(state: JobState, own_seconds: float | None, limits: NamespaceLimits, now: float) -> bool:
    """Return whether a finished job's objects must be deleted."""
    keep = kept_seconds(own_seconds, limits)
    if keep is None or not state.phase.final or state.finished is None:
        return False
    return now - state.finished >= keep


def idle_alarm(
    state: JobState, gpus: int, samples: Sequence[Sample], idle: Idle, now: float
) -> Finding | None:
    """Return a warning for GPUs without load: no worker has computed for the given time."""
    recent = [sample for sample in samples if now - sample.time <= idle.after_seconds]
    if not gpus or state.phase is not Phase.RUNNING or len(recent) == len(samples):
        # Not measured for long enough.
        return None
    if not recent or any(_is_busy(sample, idle) for sample in recent):
        return None
    return Finding(
        code="GPUS_IDLE",
        message=f"{gpus} GPUs are held, and no worker has computed for {span(idle.after_seconds)}",
        hint=f"mpijob stacks {state.ref.name} shows the call stacks of the ranks; mpijob cancel frees the GPUs",
        severity=Severity.WARNING,
    )


def _is_busy(sample: Sample, idle: Idle) -> bool:
    # GPU load is not measured everywhere; a program that feeds GPUs uses its CPU cores too.
    return sample.cpu_cores > _BUSY_CORES or sample.gpus > idle.gpu_percent / 100
