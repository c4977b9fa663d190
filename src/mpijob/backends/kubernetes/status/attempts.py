"""Combines several observations of one attempt: pods are deleted before their job, so later ones contain less."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mpijob.model import JobState, LauncherState, Phase, WorkerState

_ALWAYS_NEW = ("name", "phase", "reason", "message", "exit_code", "restarts")
# The code of a failure without a known cause.
_UNKNOWN = "UNKNOWN"


def merged(recorded: Iterable[JobState], seen: tuple[JobState, ...]) -> tuple[JobState, ...]:
    """Return all attempts: the last one as it is now, earlier ones with what was recorded of them."""
    *earlier, last = seen
    known = {state.attempt: state for state in recorded if state.attempt < last.attempt}
    for state in earlier:
        before = known.get(state.attempt)
        known[state.attempt] = state if before is None else richer(before, state)
    return (*(known[attempt] for attempt in sorted(known)), last)


def richer(before: JobState, now: JobState) -> JobState:
    """Return the state `now` with what was observed of the same attempt before and cannot be read any more."""
    if before.attempt != now.attempt:
        return now
    if before.phase.final and _knows_less(before, now):
        # An observed end is kept: a job that is being deleted looks as if it had never ended.
        return before
    # By index: a worker without a pod has another name.
    known = {worker.index: worker for worker in before.workers}
    workers = tuple(_richer_worker(known.get(worker.index), worker) for worker in now.workers)
    launcher = _richer_launcher(before.launcher, now.launcher)
    exit_code = before.launcher_exit_code if now.launcher_exit_code is None else now.launcher_exit_code
    return msgspec.structs.replace(
        now,
        launcher=launcher,
        workers=workers or before.workers,
        ranks=now.ranks or before.ranks,
        launcher_exit_code=exit_code,
        started=now.started or (before.started if now.phase.final else None),
        running=now.running or (before.running if now.phase.final else None),
        findings=now.findings or (before.findings if now.phase is before.phase else ()),
    )


def _knows_less(before: JobState, now: JobState) -> bool:
    """Return whether a later observation of an ended job has less about its end."""
    if not now.phase.final or now.phase is Phase.CANCELLED:
        return True
    codes = [state.findings[0].code if state.findings else _UNKNOWN for state in (before, now)]
    lost_exit_code = before.launcher_exit_code is not None and now.launcher_exit_code is None
    return lost_exit_code or (codes[0] != _UNKNOWN and codes[1] == _UNKNOWN)


def _richer_launcher(before: LauncherState | None, now: LauncherState | None) -> LauncherState | None:
    if before is None or now is None:
        return now or before
    known = {name: getattr(before, name) for name in before.__struct_fields__ if name not in _ALWAYS_NEW}
    fresh = {name: value for name, value in ((name, getattr(now, name)) for name in known) if value}
    return msgspec.structs.replace(
        now,
        **known | fresh,
        # Without a pod, the launcher has another name.
        name=now.name if now.log_source else before.name,
        exit_code=before.exit_code if now.exit_code is None else now.exit_code,
        restarts=max(now.restarts, before.restarts),
    )


def _richer_worker(before: WorkerState | None, now: WorkerState) -> WorkerState:
    if before is None:
        return now
    return msgspec.structs.replace(
        now,
        node=now.node or before.node,
        exit_code=before.exit_code if now.exit_code is None else now.exit_code,
        restarts=max(now.restarts, before.restarts),
        gpus=now.gpus or before.gpus,
        memory_limit_bytes=now.memory_limit_bytes or before.memory_limit_bytes,
    )
