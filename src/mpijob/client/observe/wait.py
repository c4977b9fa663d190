"""Wait for a job, with the same result on every engine.

The engine does the waiting (`pause`), so that waiting for a simulated job takes no time. The timeout counts
real seconds or paused seconds, whichever are more.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from mpijob.backends.outage_tolerance import OutageTolerance
from mpijob.errors import BackendError, Conflict, JobFailed, Severity, WaitTimeout
from mpijob.model import Phase

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef, JobState

FINAL = (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)
_PASSED_THROUGH = (Phase.QUEUED, Phase.PENDING, Phase.INITIALIZING, Phase.RUNNING)
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.02, 0.5, 1.3


def wait(
    ref: JobRef, backend: Backend, *, seconds: float | None = None, phases: Collection[Phase] | None = None
) -> JobState:
    """Wait until the job is in one of the phases (default: until it ends), and return its state.

    Raise WaitTimeout on timeout, JobFailed if the job ended in another phase. Waiting changes nothing.
    """
    state, wanted = backend.get(ref), FINAL if phases is None else tuple(phases)
    begun, paused, step, patience = time.monotonic(), 0.0, _FIRST_PAUSE, OutageTolerance()
    while state.phase not in wanted:
        if state.phase.final:
            return _ended_otherwise(state, wanted)
        waited = max(time.monotonic() - begun, paused)
        if seconds is not None and waited >= seconds:
            raise _too_late(state, seconds, silent=patience.in_outage)
        moment = step if seconds is None else min(step, seconds - waited)
        backend.pause(moment)
        paused, step = paused + moment, min(step * _GROWTH, _LONGEST_PAUSE)
        state = _next(state, backend, patience)
    return state


def _next(state: JobState, backend: Backend, patience: OutageTolerance) -> JobState:
    """Return the next state, or the last one while the engine does not respond."""
    try:
        state = backend.get(state.ref)
    except BackendError as error:
        patience.tolerate(error)
    else:
        patience.reset()
    return state


def completion(ref: JobRef, backend: Backend, *, seconds: float | None = None) -> JobState:
    """Wait until the job succeeds; raise JobFailed with its findings if it does not."""
    return wait(ref, backend, seconds=seconds, phases=(Phase.SUCCEEDED,))


def goes_on(ref: JobRef) -> str:
    """Return the message for a user who interrupts a wait: the job keeps running."""
    place = "" if ref.namespace == "default" else f" -n {ref.namespace}"
    return (
        f"job '{ref.name}' is still running; "
        f"to cancel it: client.cancel('{ref.name}') or mpijob cancel {ref.name}{place}"
    )


def failure(state: JobState) -> JobFailed:
    """Return the error that tells how a job ended, the first cause first."""
    first = next((one for one in state.findings if one.severity is not Severity.NOTICE), None)
    cause = first.message if first else state.message or state.reason
    blamed = f"worker {first.worker}: " if first and _unnamed(first.worker, cause) else ""
    hint = (first.hint if first else "") or f"show its log: mpijob logs {state.ref.name}"
    verb = "was cancelled" if state.phase is Phase.CANCELLED else "failed"
    return JobFailed(
        f"job '{state.ref.name}' {verb}" + (f": {blamed}{cause}" if cause else ""),
        hint=hint,
        findings=state.findings,
    )


def _unnamed(worker: int | None, cause: str) -> bool:
    return worker is not None and f"worker {worker}" not in cause.lower().replace("-", " ")


def _ended_otherwise(state: JobState, wanted: Collection[Phase]) -> JobState:
    if state.phase is not Phase.SUCCEEDED:
        raise failure(state)
    if any(phase in _PASSED_THROUGH for phase in wanted):
        # It was in that phase between two reads.
        return state
    words = " or ".join(phase.value for phase in wanted)
    raise Conflict(f"{state.ref} has succeeded; it will not become {words}")


def _too_late(state: JobState, seconds: float, *, silent: bool = False) -> WaitTimeout:
    if silent:
        return WaitTimeout(
            f"{state.ref} was last seen {state.phase.value}; its engine did not respond within {seconds:g} s",
            hint=f"the job keeps running; when the engine is reachable again: mpijob describe {state.ref.name}",
        )
    reason = f" ({state.waiting_for or state.message})" if state.waiting_for or state.message else ""
    return WaitTimeout(
        f"{state.ref} is still {state.phase.value} after {seconds:g} s{reason}",
        hint=f"wait longer, or see what it does: mpijob describe {state.ref.name}",
    )
