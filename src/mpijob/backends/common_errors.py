"""Errors that several engines raise, so that each sentence exists once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijob.errors import Conflict, Finding, InvalidJob, NotFound, Unsupported
from mpijob.model import Family, Phase

if TYPE_CHECKING:
    from mpijob.model import JobRef, JobState, MPIJob
    from mpijob.settings import Settings


LIST_ALL_HINT = "mpijob list --all-namespaces shows every job"


def name_in_use(ref: JobRef, phase: Phase) -> Conflict:
    return Conflict(
        f"job '{ref.name}' exists in namespace '{ref.namespace}' and is {phase.value}",
        hint=f"choose another name, wait for it to end, or run: mpijob delete {ref.name} -n {ref.namespace}",
    )


def refuse_unknown_recipients(job: MPIJob, settings: Settings) -> None:
    """Raise InvalidJob if a recipient of the job's notifications matches no callback of the settings."""
    callbacks = [
        callback
        for callback in settings.callbacks
        if not callback.namespaces or job.namespace in callback.namespaces
    ]
    for index, recipient in enumerate(job.notify):
        if not any(callback.takes(recipient.to) for callback in callbacks):
            kind, wanted = "is called", f'name = "{recipient.to}"'
            if recipient.is_address:
                kind, wanted = "may send mail to", f'domains = ["{recipient.to.rpartition("@")[2]}"]'
            finding = Finding(
                code="BAD_NOTICE",
                field=f"notify[{index}].to",
                message=f"no callback in the settings {kind} '{recipient.to}': the notification would be lost",
                hint=f"write {wanted} into a [[callbacks]] of the settings",
            )
            raise InvalidJob.of((finding,))


def refuse_uneven_slots(job: MPIJob, family: Family) -> None:
    """Raise InvalidJob where the job's own launcher would place the ranks of its groups otherwise than planned.

    Intel MPI reads the slots of each worker only from an option of the command line that mpijob cannot add there.
    """
    if family is Family.INTEL and not job.script and not job.has_equal_slots:
        finding = Finding(
            code="BAD_GROUPS",
            field="groups",
            message="the command contains its own launcher, and with Intel MPI it places the same number of "
            "ranks on each worker; the groups have different slots",
            hint="set only the program in command, or use mpi: mpich, or set the same slots in all groups",
        )
        raise InvalidJob.of((finding,))


def no_such_schedule(namespace: str, name: str) -> NotFound:
    return NotFound(
        f"there is no schedule '{name}' in namespace '{namespace}'", hint="mpijob schedule list shows them"
    )


def no_such_job(ref: JobRef) -> NotFound:
    description = f"'{ref.name}'" if ref.name else f"with the uid {ref.uid}"
    return NotFound(f"no job {description} in namespace '{ref.namespace}'", hint=LIST_ALL_HINT)


def no_such_template(namespace: str, name: str) -> NotFound:
    return NotFound(
        f"namespace '{namespace}' shares no template '{name}'", hint="`mpijob template list` shows them"
    )


def template_exists(namespace: str, name: str) -> Conflict:
    return Conflict(
        f"namespace '{namespace}' shares a template '{name}' already",
        hint="choose another name, or add --overwrite",
    )


def wrong_phase(state: JobState, rule: str) -> Conflict:
    """Return the error for an operation that is not possible in the job's phase; `rule` says when it is."""
    return Conflict(f"{state.ref} is {state.phase.value}; {rule}")


def refuse_suspending(state: JobState) -> None:
    """Raise Conflict for a job that has ended."""
    if state.phase.final:
        raise wrong_phase(state, "only a job that has not ended can be suspended")


def refuse_resuming(state: JobState) -> None:
    """Raise Conflict for a job that is not suspended."""
    if state.phase is not Phase.SUSPENDED:
        raise wrong_phase(state, "only a suspended job can be resumed")


def refuse_scaling(state: JobState, job: MPIJob, workers: int) -> None:
    """Raise Conflict or Unsupported if a job cannot have this number of workers now."""
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
