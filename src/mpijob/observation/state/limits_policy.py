"""What the clock and a namespace's limits ask of a job: an alarm, its end, its removal; and how it moved on.

The controller of a cluster carries a state and the limits here and does what is answered. `Progress` is what it
notes on the job, so that a controller that was killed goes on where it was.
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
_BUSY_CORES = 0.05  # what a rank uses that only waits


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last published transition: phase, time and transition count."""

    phase: str = ""
    since: float = 0.0
    number: int = 0


def moved(before: Progress, state: JobState, now: float) -> Progress | None:
    """Return the next transition, if there is one; an end is the last, whatever is seen later."""
    if before.phase == state.phase.value or (before.phase and Phase(before.phase).final):
        return None
    if before.phase and state.reason in _ENDING and not state.phase.final:
        return None  # its pods go one by one: what is still there is no stage of its way
    if before.phase == Phase.INITIALIZING.value and state.phase is Phase.PENDING:
        return None  # a worker that was ready and is not, on the same way up
    since = max(_since(state) or now, before.since)
    return Progress(state.phase.value, since, before.number + 1)


def told(before: Progress, after: Progress, state: JobState) -> str:
    """Return the transition as a sentence: what is now, and how long it took from what was before."""
    parts = [state.message.rstrip(".") or state.phase.value]
    if before.phase:
        parts.append(f"after {span(after.since - before.since)} {before.phase}")
    if state.phase.final and state.finished is not None:
        parts.append(_lasted(state, state.finished))
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


def _lasted(state: JobState, finished: float) -> str:
    begun = state.running or state.started
    ran = f"ran {span(finished - begun)}, " if begun else "never ran, "
    return f"{ran}{span(finished - state.created)} from submit to end"


# -- by the clock ------------------------------------------------------------------------------------
def overrun(state: JobState, limits: NamespaceLimits, now: float) -> str:
    """Return why a job must end now because of its namespace's greatest duration; "" when it may go on."""
    most, begun = limits.max_duration_seconds, state.running or state.started
    if most is None or begun is None or not state.phase.active or now - begun < most:
        return ""
    return f"the job ran {span(now - begun)}; namespace {state.ref.namespace} allows {span(most)}"


def deadline_alarm(
    state: JobState, own_seconds: float | None, limits: NamespaceLimits, now: float
) -> Finding | None:
    """Return the alarm for a job that has used nine tenths of the time that it has."""
    known = [one for one in (own_seconds, limits.max_duration_seconds) if one is not None]
    begun = state.running or state.started
    if not known or begun is None or state.phase is not Phase.RUNNING:
        return None
    most, used = min(known), now - begun
    if used < _NEAR_SHARE * most:
        return None
    return Finding(
        code="DEADLINE_NEAR",
        message=f"less than a tenth is left of the {span(most)} that the job may run",
        hint="see that it writes a checkpoint; a longer time is deadline_seconds, within the namespace's limit",
        severity=Severity.WARNING,
    )


def kept_seconds(own_seconds: float | None, limits: NamespaceLimits) -> float | None:
    """Return how long a finished job's objects are kept: by its own `ttl_seconds`, at most as its namespace says."""
    longest = limits.retention.finished_jobs_seconds if limits.retention else None
    return min((one for one in (own_seconds, longest) if one is not None), default=None)


def expired(state: JobState, own_seconds: float | None, limits: NamespaceLimits, now: float) -> bool:
    """Whether a finished job's objects have been kept as long as the job and its namespace want."""
    keep = kept_seconds(own_seconds, limits)
    if keep is None or not state.phase.final or state.finished is None:
        return False
    return now - state.finished >= keep


def idle_alarm(
    state: JobState, gpus: int, samples: Sequence[Sample], idle: Idle, now: float
) -> Finding | None:
    """Return the alarm for GPUs that nothing feeds: all workers together compute nearly nothing for long."""
    recent = [one for one in samples if now - one.time <= idle.after_seconds]
    if not gpus or state.phase is not Phase.RUNNING or len(recent) == len(samples):
        return None  # not measured for long enough
    if not recent or any(_is_busy(one, idle) for one in recent):
        return None
    return Finding(
        code="GPUS_IDLE",
        message=f"{gpus} GPUs are held, and no worker has computed for {span(idle.after_seconds)}",
        hint=f"mpijob stacks {state.ref.name} shows the call stacks of the ranks; mpijob cancel frees the GPUs",
        severity=Severity.WARNING,
    )


def _is_busy(sample: Sample, idle: Idle) -> bool:
    """Whether a worker computed; where nothing measures its GPUs, what feeds them tells."""
    return sample.cpu_cores > _BUSY_CORES or sample.gpus > idle.gpu_percent / 100
