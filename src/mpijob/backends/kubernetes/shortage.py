"""What a job without a place lacks, in numbers: the scheduler tells what is short, nodes tell how much there is."""

from __future__ import annotations

import msgspec

from mpijob import admission
from mpijob.model import Facts, JobState, MPIJob
from mpijob.observation.phase import Reason


def is_short(state: JobState) -> bool:
    """Whether the scheduler finds no place for a pod of this job."""
    return state.reason == Reason.UNSCHEDULABLE


def counted(state: JobState, job: MPIJob, facts: Facts) -> JobState:
    """Say how much is asked for and how much is free, where the user may read that; else leave it as it is.

    What the job's own placed workers hold is not short of anything.
    """
    placed = sum(bool(one.node) for one in state.workers)
    own = admission.worker_needs(job).times(placed)
    around = msgspec.structs.replace(facts, free=facts.free.plus(own))
    short = admission.insufficient_sentence(job, around)
    if not short:
        return state
    who = state.message[at:] if (at := state.message.rfind(" (")) >= 0 else ""
    waits = admission.availability_sentence(job, around)
    return msgspec.structs.replace(state, message=f"{short}{who}", waiting_for=waits)
