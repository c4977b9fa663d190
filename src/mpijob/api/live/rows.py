"""Convert a job's state to a row of the list, with the available actions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mpijob.accounting.build import exit_code
from mpijob.api.schemas.job_schemas import Action, AttemptRow, JobRow, RunRow
from mpijob.model import JobState, Phase

_ENDED: tuple[Action, ...] = ("retry", "clone", "delete")
_GOING: tuple[Action, ...] = ("cancel", "suspend", "clone", "delete")
# The findings of a running job are its warnings.
_EXPLAINED = (Phase.FAILED, Phase.RUNNING)


def row(state: JobState) -> JobRow:
    return JobRow(
        uid=state.ref.uid or str(state.ref),
        namespace=state.ref.namespace,
        name=state.ref.name,
        kind=state.kind,
        phase=state.phase,
        why=why(state),
        cause=state.findings[0].code if state.findings and state.phase in _EXPLAINED else "",
        owner=state.owner,
        queue=state.queue,
        engine=state.engine,
        mpi=state.mpi,
        workers=max(state.workers_wanted, len(state.workers)),
        workers_ready=sum(one.phase in (Phase.RUNNING, Phase.SUCCEEDED) for one in state.workers),
        ranks=state.world,
        gpus=sum(len(one.gpus) for one in state.workers),
        attempt=state.attempt,
        created=state.created,
        started=state.started,
        finished=state.finished,
        released=state.released,
        actions=actions(state.phase),
        launcher=None if state.launcher is None else state.launcher.phase,
        run=state.run,
        position=state.queue_position if state.phase is Phase.QUEUED else None,
        wait_basis=state.wait_basis if state.phase is Phase.QUEUED else "",
    )


def run_row(run: JobState, attempts: Iterable[JobState]) -> RunRow:
    return RunRow(
        run=run.run,
        address=f"{run.ref.name}@{run.run}",
        row=row(run),
        deleted=run.deleted,
        attempts=tuple(attempt_row(one) for one in attempts),
    )


def attempt_row(state: JobState) -> AttemptRow:
    return AttemptRow(
        attempt=state.attempt,
        phase=state.phase,
        reason=state.reason,
        why=why(state),
        cause=state.findings[0].code if state.findings and state.phase is Phase.FAILED else "",
        workers=state.aggregate,
        nodes=tuple(sorted({worker.node for worker in state.workers if worker.node})),
        exit_code=exit_code(state),
        queued=state.queued,
        started=state.started,
        running=state.running,
        finished=state.finished,
        launcher=state.launcher,
    )


def why(state: JobState) -> str:
    """Return one sentence: the first cause, else what the job waits for, else the engine's message."""
    if state.findings and state.phase is not Phase.SUCCEEDED:
        return state.findings[0].message
    if state.waiting_for and not state.phase.final:
        return state.waiting_for
    if state.phase is Phase.RUNNING and state.workers:
        ready = sum(one.phase in (Phase.RUNNING, Phase.SUCCEEDED) for one in state.workers)
        return f"{ready} of {max(state.workers_wanted, len(state.workers))} workers running"
    return state.message or _words(state.reason)


def _words(reason: str) -> str:
    """Split an engine's CamelCase reason: `WaitingForResources` becomes `Waiting for resources`."""
    return " ".join(re.findall(r"[A-Z]?[^A-Z]+|[A-Z]+(?![a-z])", reason)).capitalize()


def actions(phase: Phase) -> tuple[Action, ...]:
    if phase.final:
        return _ENDED
    if phase is Phase.SUSPENDED:
        return ("resume", "cancel", "clone", "delete")
    return ("clone",) if phase is Phase.DELETING else _GOING
