"""An attempt that was seen several times: what is known of it together, though its pods went before its object."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mpijob.model import JobState, LauncherState, Phase, WorkerState

_ALWAYS_NEW = ("name", "phase", "reason", "message", "exit_code", "restarts")
_UNKNOWN = "UNKNOWN"  # the code of a failure whose cause nothing tells


def merged(recorded: Iterable[JobState], seen: tuple[JobState, ...]) -> tuple[JobState, ...]:
    """Return every attempt by what was recorded of it and what is seen of it now; the last one as it is seen."""
    *earlier, last = seen
    known = {one.attempt: one for one in recorded if one.attempt < last.attempt}
    for state in earlier:
        before = known.get(state.attempt)
        known[state.attempt] = state if before is None else richer(before, state)
    return (*(known[attempt] for attempt in sorted(known)), last)


def richer(before: JobState, now: JobState) -> JobState:
    """Return a state with what was known of the same attempt and cannot be seen any more: pods go before their job."""
    if before.attempt != now.attempt:
        return now
    if before.phase.final and _knows_less(before, now):
        return before  # an end that was seen stays, whatever its objects look like while they are taken away
    known = {worker.index: worker for worker in before.workers}  # a worker without a pod has another name
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
    """Whether a later look at a job that has ended saw less of its end: its pods were going."""
    if not now.phase.final or now.phase is Phase.CANCELLED:
        return True
    codes = [state.findings[0].code if state.findings else _UNKNOWN for state in (before, now)]
    unseen = before.launcher_exit_code is not None and now.launcher_exit_code is None
    return unseen or (codes[0] != _UNKNOWN and codes[1] == _UNKNOWN)


def _richer_launcher(before: LauncherState | None, now: LauncherState | None) -> LauncherState | None:
    if before is None or now is None:
        return now or before
    known = {name: getattr(before, name) for name in before.__struct_fields__ if name not in _ALWAYS_NEW}
    fresh = {name: value for name, value in ((name, getattr(now, name)) for name in known) if value}
    return msgspec.structs.replace(
        now,
        **known | fresh,
        name=now.name if now.log_source else before.name,  # one without a pod has another name
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
