"""The refusals that every engine must be able to say, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijob.errors import Conflict, NotFound

if TYPE_CHECKING:
    from mpijob.model import JobRef, Phase


def name_in_use(ref: JobRef, phase: Phase) -> Conflict:
    """Return the error for a name whose job is not finished."""
    return Conflict(
        f"job '{ref.name}' exists in namespace '{ref.namespace}' and is {phase.value}",
        hint=f"choose another name, wait for it to end, or run: mpijob delete {ref.name} -n {ref.namespace}",
    )


def no_such_schedule(namespace: str, name: str) -> NotFound:
    """Return the error for a schedule that is not there."""
    return NotFound(
        f"there is no schedule '{name}' in namespace '{namespace}'", hint="mpijob schedule list shows them"
    )


def no_such_job(ref: JobRef) -> NotFound:
    """Return the error for a job that is not there."""
    return NotFound(
        f"no job '{ref.name}' in namespace '{ref.namespace}'",
        hint="mpijob list --all-namespaces shows every job",
    )
