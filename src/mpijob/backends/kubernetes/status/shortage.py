"""What a job without a place lacks, in numbers: the scheduler tells what is short, nodes tell how much there is."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from mpijob import admission
from mpijob.backends.bounded_dict import BoundedDict
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.errors import MpiJobError
from mpijob.model import Facts, JobRef, JobState, MPIJob
from mpijob.observation.state.phase import Reason

_ROOM_SECONDS = 5.0


class Counter:
    """Counts what is free, anew every few seconds: whoever waits looks at the job more often."""

    def __init__(self, room: Callable[[MPIJob], Facts]) -> None:
        self._room = room
        self._counted = BoundedDict[JobRef, tuple[float, Facts]]()

    def counted(self, state: JobState, job: Callable[[], MPIJob]) -> JobState:
        """Return the state of a job with numbers, where it lacks something and they can be had."""
        if not is_short(state):
            return state
        try:
            spec = job()
            return counted(state, spec, self._facts(spec, state))
        except (MpiJobError, ApiError):
            return state  # what the scheduler says is true without numbers, too

    def _facts(self, job: MPIJob, state: JobState) -> Facts:
        when, facts = self._counted.get(state.ref, (0.0, None))
        if facts is None or time.monotonic() - when > _ROOM_SECONDS:
            facts = self._room(job)
            self._counted[state.ref] = time.monotonic(), facts
        return facts


def is_short(state: JobState) -> bool:
    """Whether the scheduler finds no place for a pod of this job."""
    return state.reason == Reason.UNSCHEDULABLE


def counted(state: JobState, job: MPIJob, facts: Facts) -> JobState:
    """Say how much is asked for and how much is free, where the user may read that; else leave it as it is.

    What the job's own placed workers hold is not short of anything.
    """
    free = facts.free
    for worker in state.workers:
        free = free.plus(job.part_of(worker.index).job.resources.asked) if worker.node else free
    around = msgspec.structs.replace(facts, free=free)
    short = admission.insufficient_sentence(job, around)
    if not short:
        return state
    who = state.message[at:] if (at := state.message.rfind(" (")) >= 0 else ""
    waits = admission.availability_sentence(job, around)
    return msgspec.structs.replace(state, message=f"{short}{who}", waiting_for=waits)
