"""Decides whether a failed attempt is retried, by its cause (`retry.on`).

A cause is a word of `RETRY_CAUSES`, which stands for what engines and libraries name differently, or the code
of a finding as `mpijob why` shows it. Only the first finding counts: the others followed from it.
"""

from __future__ import annotations

from mpijob.model import JobState
from mpijob.model.spec.job import Retry
from mpijob.observation.state.phase import Reason

_REASONS: dict[str, frozenset[Reason]] = {
    "worker_lost": frozenset(
        {Reason.WORKER_LOST, Reason.SUPERVISOR_LOST, Reason.WORKER_EVICTED, Reason.LAUNCHER_LOST}
    ),
    "preempted": frozenset({Reason.WORKER_PREEMPTED, Reason.PREEMPTED}),
    "evicted": frozenset({Reason.WORKER_EVICTED}),
    "out_of_memory": frozenset({Reason.MEMORY_EXCEEDED, Reason.LAUNCHER_MEMORY}),
    "start": frozenset(
        {Reason.START_TIMEOUT, Reason.START_REFUSED, Reason.GANG_TIMEOUT, Reason.WORLD_NOT_STARTED}
    ),
    "image": frozenset(
        {Reason.IMAGE_FAILED, Reason.IMAGE_NOT_FOUND, Reason.IMAGE_REFUSED, Reason.IMAGE_NAME}
    ),
    "data": frozenset({Reason.DATA_NOT_FETCHED, Reason.VOLUME_NOT_READY}),
}
_CODES: dict[str, frozenset[str]] = {
    "worker_lost": frozenset(
        {"WORKER_LOST", "NODE_LOST", "SUPERVISOR_LOST", "DAEMON_LOST", "WORKER_EVICTED", "SLURM_NODE_FAILED"}
    ),
    "preempted": frozenset({"WORKER_PREEMPTED", "PREEMPTED", "SLURM_PREEMPTED"}),
    "evicted": frozenset({"WORKER_EVICTED"}),
    "out_of_memory": frozenset(
        {"OOM_KILLED", "MEMORY_LIMIT", "CUDA_OOM", "MEMORY_ERROR", "LAUNCHER_MEMORY", "LOADER_KILLED"}
    ),
    "nccl": frozenset({"NCCL_CONNECTION", "NCCL_ERROR", "NCCL_TIMEOUT"}),
    "network": frozenset(
        {
            "NCCL_CONNECTION",
            "NCCL_ERROR",
            "NCCL_TIMEOUT",
            "CONNECTION_REFUSED",
            "MPI_UNREACHABLE",
            "PEER_LOST",
        }
        | {"NETWORK_BLOCKED", "FABRIC_FAILED", "SSH_CUT_OFF", "SSH_FAILED", "UNKNOWN_HOST", "RENDEZVOUS"}
        | {"HOROVOD_LOST_RANK"}
    ),
    "gpu": frozenset({"CUDA_DRIVER", "CUDA_ERROR", "NO_GPU", "GPU_SHARED"}),
    "hang": frozenset({"HANG", "HOROVOD_STALL"}),
    "start": frozenset(
        {"START_TIMEOUT", "START_REFUSED", "GANG_TIMEOUT", "DAEMON_NOT_STARTED", "MPI_INIT_FAILED"}
        | {"WORLD_NOT_STARTED"}
    ),
    "image": frozenset({"IMAGE_PULL_FAILED", "IMAGE_NOT_FOUND", "IMAGE_REFUSED", "IMAGE_NAME_INVALID"}),
}
_OF_PROGRAM = frozenset({Reason.RANK_FAILED, Reason.LAUNCHER_FAILED, Reason.WORKER_FAILED})
_PROGRAM = "program"


def causes(state: JobState) -> frozenset[str]:
    """Return the words and codes of a failed attempt's cause; `program` if no other word applies.

    >>> from mpijob.errors import Finding
    >>> from mpijob.model import JobRef, Phase
    >>> lost = JobState(ref=JobRef("cv", "train"), phase=Phase.FAILED, reason="WorkerLost")
    >>> sorted(causes(lost))
    ['worker_lost']
    """
    code = state.findings[0].code if state.findings else ""
    reason = Reason(state.reason) if state.reason in set(Reason) else None
    found = {word for word, reasons in _REASONS.items() if reason in reasons}
    found |= {word for word, codes in _CODES.items() if code in codes}
    if not found and reason in _OF_PROGRAM:
        found.add(_PROGRAM)
    return frozenset(found | ({code} if code else set()))


def is_retryable(state: JobState, retry: Retry) -> bool:
    """Return whether `retry.on` includes the cause of a failed attempt; without `retry.on`, all causes are."""
    return not retry.on or not causes(state).isdisjoint(retry.on)


def refusal(state: JobState, retry: Retry) -> str:
    """Return why a failed attempt is not retried although attempts are left; "" if it is retried."""
    if is_retryable(state, retry):
        return ""
    code = state.findings[0].code if state.findings else state.reason
    return f"not retried: retry.on lists {', '.join(retry.on)}, and the cause was {code}"
