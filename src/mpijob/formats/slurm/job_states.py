"""Slurm's job states and exit codes as values.

They are used only for what a job's own script could not write about its end.
"""

from __future__ import annotations

import re
from enum import StrEnum


class JobState(StrEnum):
    """A job's state in squeue (%T) and sacct."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    STOPPED = "STOPPED"
    SIGNALING = "SIGNALING"
    STAGE_OUT = "STAGE_OUT"
    RESIZING = "RESIZING"
    COMPLETING = "COMPLETING"
    REQUEUED = "REQUEUED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    REQUEUE_FED = "REQUEUE_FED"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    PREEMPTED = "PREEMPTED"
    REVOKED = "REVOKED"
    # A state of a newer Slurm.
    UNKNOWN = "UNKNOWN"

    @property
    def waits(self) -> bool:
        """Whether the job has no nodes yet, and may get some."""
        return self in _WAITS

    @property
    def final(self) -> bool:
        """Whether the job has ended; a requeued one has another line for its next run."""
        return self in _FINAL


_WAITS = frozenset({JobState.PENDING, JobState.REQUEUED, JobState.REQUEUE_HOLD, JobState.REQUEUE_FED,
                    JobState.RESV_DEL_HOLD, JobState.SPECIAL_EXIT})  # fmt: skip
_FINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMEOUT, JobState.NODE_FAIL,
                    JobState.OUT_OF_MEMORY, JobState.BOOT_FAIL, JobState.DEADLINE, JobState.PREEMPTED,
                    JobState.REVOKED})  # fmt: skip
_SMALL = re.compile(r"\d{1,9}")
# The state COMPLETING does not say how the job ended; its reason does.
_ENDS = {
    "NodeDown": JobState.NODE_FAIL,
    "TimeLimit": JobState.TIMEOUT,
    "OutOfMemory": JobState.OUT_OF_MEMORY,
    "JobLaunchFailure": JobState.FAILED,
    "NonZeroExitCode": JobState.FAILED,
    "SystemFailure": JobState.FAILED,
    "DeadLine": JobState.DEADLINE,
}


def read(word: str) -> JobState:
    """Return the state of a word, also of `CANCELLED by 1000` (sacct) and `RUNNING+` (heterogeneous jobs)."""
    first = word.split(" ")[0].rstrip("+").upper()
    return JobState(first) if first in JobState.__members__ else JobState.UNKNOWN


def ending(state: JobState, reason: str) -> JobState | None:
    """Return how a job has ended, None while that is not known."""
    if state.final:
        return state
    return _ENDS.get(reason) if state is JobState.COMPLETING else None


def sentence(state: JobState, number: str, *, limit: str = "", nodes: str = "", by: str = "") -> str:
    """Return a sentence on how Slurm ended a job."""
    match state:
        case JobState.TIMEOUT:
            return f"Slurm ended job {number} at its time limit{f' of {limit}' if limit else ''}"
        case JobState.DEADLINE:
            return f"Slurm ended job {number} at its deadline (--deadline)"
        case JobState.NODE_FAIL:
            return f"a node of Slurm job {number} failed{f': {nodes}' if nodes else ''}"
        case JobState.BOOT_FAIL:
            return f"a node of Slurm job {number} could not be started{f': {nodes}' if nodes else ''}"
        case JobState.OUT_OF_MEMORY:
            return f"Slurm job {number} used more memory than it requested"
        case JobState.PREEMPTED:
            return f"Slurm preempted job {number} for one of higher priority"
        case JobState.CANCELLED | JobState.REVOKED:
            return f"Slurm job {number} was cancelled{f' by {by}' if by else ''}"
        case _:
            return f"Slurm reports job {number} as {state.value}"


def exit_code(text: str) -> tuple[int, int]:
    """Return (exit code, signal) of Slurm's `7:0`; (0, 0) if it is malformed."""
    # sacct masks exit codes with 0x7f (22.05), so 129 and 1 look the same: the job's own journal is more exact.
    code, colon, signal = text.partition(":")
    return (
        (int(code), int(signal)) if colon and _SMALL.fullmatch(code) and _SMALL.fullmatch(signal) else (0, 0)
    )


_CANCELLED_AT = re.compile(rb"CANCELLED AT \S+?(?: DUE TO (?P<why>[A-Z ]+))?(?:,| \*\*\*|$)")
_WHY = {
    b"TIME LIMIT": JobState.TIMEOUT,
    b"NODE FAILURE": JobState.NODE_FAIL,
    b"PREEMPTION": JobState.PREEMPTED,
    b"JOB REQUEUE": JobState.REQUEUED,
}


def read_log(output: bytes) -> JobState | None:
    """Return how Slurm ended a job by the last notice in the job's output, None without one."""
    found = list(_CANCELLED_AT.finditer(output))
    return _WHY.get((found[-1]["why"] or b"").strip(), JobState.CANCELLED) if found else None


# As a signal in the exit code: the batch script could not be started, or its output file not be opened.
LAUNCH_FAILED = 53
