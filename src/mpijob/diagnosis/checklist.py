"""The checklist of a diagnosis, in the order in which a job starts: yes, no or unknown.

Only known facts count: without evidence for or against a question, the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from mpijob.diagnosis.evidence import Evidence, Memory
from mpijob.errors import Finding
from mpijob.model import Event, JobState, Phase
from mpijob.model.spec import quantity


class Mark(StrEnum):
    """The three answers."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check with its result and its evidence."""

    question: str
    mark: Mark
    detail: str = ""


_WAITS = (
    *("WAITING", "WAITING_FOR_QUOTA", "UNSCHEDULABLE", "QUOTA_TOO_SMALL", "QUOTA_USED_UP", "QUEUE_MISSING"),
    *("QUEUE_INACTIVE", "GANG_TIMEOUT", "POLICY_REFUSED", "NOT_RESUMED"),
)
_IMAGE = ("IMAGE_NOT_FOUND", "IMAGE_NAME_INVALID", "IMAGE_REFUSED", "IMAGE_PULL_FAILED")
_START = (
    *("START_REFUSED", "NO_SSHD", "SSHD_FAILED", "NO_KEY", "SETTINGS_MISSING", "VOLUME_NOT_READY"),
    "POD_NOT_STARTED",
)
_REACH = (
    *("UNKNOWN_HOST", "CONNECTION_REFUSED", "NETWORK_BLOCKED", "HOST_KEY", "PERMISSION_DENIED", "SSH_USER"),
    *("SSH_CUT_OFF", "DAEMON_NOT_STARTED"),
)
WORLD = (
    *(
        "MPI_MISMATCH",
        "MPI_FAMILY",
        "MPI_NOT_ON_WORKER",
        "WORLD_DIFFERS",
        "START_TIMEOUT",
        "NOT_ENOUGH_SLOTS",
    ),
    *("WORLD_NOT_STARTED", "RAN_ON_LAUNCHER", "ROOT_REFUSED"),
)
_PROGRAM = ("MISSING_EXECUTABLE",)
_MEMORY = ("MEMORY_LIMIT", "OOM_KILLED", "MEMORY_ERROR", "LAUNCHER_MEMORY")
_NETWORK = (
    "MPI_UNREACHABLE",
    "NCCL_CONNECTION",
    "NCCL_TIMEOUT",
    "RENDEZVOUS",
    "NO_INFINIBAND",
    "LINK_FAILED",
)
_GPU = ("CUDA_OOM", "CUDA_ERROR", "NO_GPU", "CUDA_DRIVER")
_DISK = ("DISK_FULL", "SHM_FULL")
_LOST = ("WORKER_LOST", "WORKER_EVICTED", "WORKER_PREEMPTED", "NODE_LOST", "DAEMON_LOST")


def checklist(
    state: JobState | None, seen: Evidence, findings: tuple[Finding, ...], events: Iterable[Event] = ()
) -> tuple[Check, ...]:
    """Return the questions that apply; `state` is None for a log without a job."""
    known = {event.reason for event in events if state is not None and event.attempt == state.attempt}
    found = {finding.code: finding for finding in findings}
    return tuple(_checks(state, seen, found, ready="WorkersReady" in known))


def _checks(
    state: JobState | None, seen: Evidence, found: dict[str, Finding], *, ready: bool
) -> Iterator[Check]:
    has_started = state is not None and state.started is not None
    has_run = state is not None and state.running is not None
    has_succeeded = state is not None and state.phase is Phase.SUCCEEDED
    workers = "all" if seen.bare else f"all {seen.spec.workers}"
    ranks = "the ranks" if seen.bare else f"{seen.spec.world} ranks"
    yield _check("resources were allocated", found, _WAITS, yes=has_started or has_run)
    if seen.spec.image or any(code in found for code in _IMAGE):
        yield _check("the image was pulled", found, _IMAGE, yes=has_run)
    yield _check(f"{workers} workers started", found, _START, yes=has_run or ready)
    yield _check("the launcher reached every worker", found, _REACH, yes=has_run)
    yield _check(f"MPI started with {ranks}", found, WORLD, yes=has_run and seen.spec.census)
    if any(code in found for code in _PROGRAM):
        yield _check("the program was found", found, _PROGRAM, yes=False)
    yield _check("every worker stayed until the end", found, _LOST, yes=has_succeeded)
    yield _memory(seen, found)
    yield _check("there was space on disk and in /dev/shm", found, _DISK, yes=has_succeeded)
    if seen.spec.most_gpus or any(code in found for code in _GPU):
        yield _check("the GPUs worked", found, _GPU, yes=has_succeeded)
    yield _check("the ranks could communicate", found, _NETWORK, yes=has_succeeded)
    yield _ended(state, seen)


def _check(question: str, found: dict[str, Finding], codes: tuple[str, ...], *, yes: bool) -> Check:
    # Yes if the job reached a later stage.
    against = next((finding for code, finding in found.items() if code in codes), None)
    if against is not None:
        return Check(question, Mark.NO, f"see {against.code}")
    return Check(question, Mark.YES if yes else Mark.UNKNOWN)


def _memory(seen: Evidence, found: dict[str, Finding]) -> Check:
    question = "memory stayed below the limit"
    check = _check(question, found, _MEMORY, yes=False)
    largest = max(seen.memory, key=_share, default=None)
    if check.mark is Mark.NO or largest is None or not (largest.peak_bytes and largest.limit_bytes):
        return check
    amounts = f"{quantity.as_bytes(largest.peak_bytes)} of {quantity.as_bytes(largest.limit_bytes)}"
    mark = Mark.YES if _share(largest) < 1.0 else Mark.NO
    return Check(question, mark, f"worker {largest.worker} used {amounts} at most")


def _share(memory: Memory) -> float:
    return memory.peak_bytes / memory.limit_bytes if memory.limit_bytes else 0.0


def _ended(state: JobState | None, seen: Evidence) -> Check:
    question = "the launcher exited with 0"
    code = seen.launcher.status if seen.launcher is not None else None
    code = state.launcher_exit_code if code is None and state is not None else code
    if code is None:
        return Check(question, Mark.UNKNOWN)
    return Check(question, Mark.YES if code == 0 else Mark.NO, f"exit code {code}")
