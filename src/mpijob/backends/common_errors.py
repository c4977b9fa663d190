"""The refusals that every engine must be able to say, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijob.errors import Conflict, Finding, InvalidJob, NotFound, Unsupported
from mpijob.model import Phase

if TYPE_CHECKING:
    from mpijob.model import JobRef, JobState, MPIJob
    from mpijob.settings import Settings


LIST_ALL_HINT = "mpijob list --all-namespaces shows every job"


def name_in_use(ref: JobRef, phase: Phase) -> Conflict:
    """Return the error for a name whose job is not finished."""
    return Conflict(
        f"job '{ref.name}' exists in namespace '{ref.namespace}' and is {phase.value}",
        hint=f"choose another name, wait for it to end, or run: mpijob delete {ref.name} -n {ref.namespace}",
    )


def refuse_unknown_recipients(job: MPIJob, settings: Settings) -> None:
    """Raise InvalidJob where a job wants somebody to be told whom no callback of these settings reaches."""
    there = [one for one in settings.callbacks if not one.namespaces or job.namespace in one.namespaces]
    for index, wish in enumerate(job.notify):
        if not any(one.takes(wish.to) for one in there):
            kind = "may send mail to" if wish.is_address else "is called"
            wanted = (
                f'domains = ["{wish.to.rpartition("@")[2]}"]' if wish.is_address else f'name = "{wish.to}"'
            )
            finding = Finding(
                code="BAD_NOTICE",
                field=f"notify[{index}].to",
                message=f"no callback in the settings {kind} '{wish.to}': the notification would be lost",
                hint=f"write {wanted} into a [[callbacks]] of the settings",
            )
            raise InvalidJob.of((finding,))


def no_such_schedule(namespace: str, name: str) -> NotFound:
    """Return the error for a schedule that is not there."""
    return NotFound(
        f"there is no schedule '{name}' in namespace '{namespace}'", hint="mpijob schedule list shows them"
    )


def no_such_job(ref: JobRef) -> NotFound:
    """Return the error for a job that is not there."""
    named = f"'{ref.name}'" if ref.name else f"with the uid {ref.uid}"
    return NotFound(
        f"no job {named} in namespace '{ref.namespace}'",
        hint=LIST_ALL_HINT,
    )


def no_such_template(namespace: str, name: str) -> NotFound:
    """Return the error for a template that a namespace does not share."""
    return NotFound(
        f"namespace '{namespace}' shares no template '{name}'", hint="`mpijob template list` shows them"
    )


def template_exists(namespace: str, name: str) -> Conflict:
    """Return the error for a template that would take the place of another one."""
    return Conflict(
        f"namespace '{namespace}' shares a template '{name}' already",
        hint="choose another name, or add --overwrite",
    )


def wrong_phase(state: JobState, rule: str) -> Conflict:
    """Return the error for what a job's phase does not allow."""
    return Conflict(f"{state.ref} is {state.phase.value}; {rule}")


def refuse_suspending(state: JobState) -> None:
    """Raise for a job that has ended."""
    if state.phase.final:
        raise wrong_phase(state, "only a job that has not ended can be suspended")


def refuse_resuming(state: JobState) -> None:
    """Raise for a job that is not at rest."""
    if state.phase is not Phase.SUSPENDED:
        raise wrong_phase(state, "only a suspended job can be resumed")


def refuse_scaling(state: JobState, job: MPIJob, workers: int) -> None:
    """Raise when a job cannot be given so many workers now, with what is in the way."""
    name = state.ref.name
    if state.phase.final or state.phase is Phase.DELETING:
        raise wrong_phase(state, "only a job that has not ended can be scaled")
    if job.elastic is None:
        raise Unsupported(
            f"{state.ref} is not elastic: its number of ranks is fixed, and more workers would be idle",
            hint=f"create a job of another size: mpijob clone {name} --workers {workers}; or an elastic one, with "
            "--max-workers and a launcher that discovers workers (mpijob explain elastic)",
        )
    least, most = job.elastic.min_workers, job.elastic.max_workers
    if not least <= workers <= most:
        raise Conflict(
            f"{state.ref} accepts {least} to {most} workers; {workers} requested",
            hint=f"use {min(max(workers, least), most)}, or clone it with other bounds",
        )
