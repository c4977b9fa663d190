"""What a pod that cannot be scheduled lacks, in numbers: from the scheduler's message and the nodes' capacity."""

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

# Capacity takes several requests, and clients that wait read the job more often.
_FACTS_SECONDS = 5.0


class Counter:
    """Adds numbers to the states of unschedulable jobs; reads the capacity every few seconds at most."""

    def __init__(self, read_facts: Callable[[MPIJob], Facts]) -> None:
        self._read_facts = read_facts
        self._cached = BoundedDict[JobRef, tuple[float, Facts]]()

    def with_numbers(self, state: JobState, job: Callable[[], MPIJob]) -> JobState:
        """Return the state with numbers, if it lacks capacity and they can be read."""
        if not is_short(state):
            return state
        try:
            spec = job()
            return with_numbers(state, spec, self._facts(spec, state))
        except (MpiJobError, ApiError):
            # The scheduler's message is right without numbers, too.
            return state

    def _facts(self, job: MPIJob, state: JobState) -> Facts:
        when, facts = self._cached.get(state.ref, (0.0, None))
        if facts is None or time.monotonic() - when > _FACTS_SECONDS:
            facts = self._read_facts(job)
            self._cached[state.ref] = time.monotonic(), facts
        return facts


def is_short(state: JobState) -> bool:
    """Return whether the scheduler finds no node for a pod of this job."""
    return state.reason == Reason.UNSCHEDULABLE


def with_numbers(state: JobState, job: MPIJob, facts: Facts) -> JobState:
    """Return the state with requested and free capacity in its message, unchanged if nothing is short."""
    # The job's scheduled workers hold a part of its request already.
    free = facts.free
    for worker in state.workers:
        free = free.plus(job.part_of(worker.index).job.resources.asked) if worker.node else free
    with_own = msgspec.structs.replace(facts, free=free)
    short = admission.insufficient_sentence(job, with_own)
    if not short:
        return state
    who = state.message[at:] if (at := state.message.rfind(" (")) >= 0 else ""
    waits = admission.availability_sentence(job, with_own)
    return msgspec.structs.replace(state, message=f"{short}{who}", waiting_for=waits)
