"""Time of a job in each stage, from its events."""

from __future__ import annotations

from collections.abc import Iterable

from mpijob.model import Event
from mpijob.model.status.accounts import Account

STAGES = ("queue", "start", "connect", "mpi_init", "run")
_ENDS = {"GangScheduled": "queue", "WorkersReady": "start", "WorldProved": "connect", "Running": "mpi_init"}


def moments(account: Account, events: Iterable[Event]) -> list[tuple[str, float, float]]:
    """Return the stages of the last attempt in order: name, begin, end.

    `queue` ends with the gang's nodes, `start` (image, container) when all workers answer, `connect` when the
    launcher has counted the ranks, `mpi_init` when the program may begin.
    """
    times = {
        _ENDS[one.reason]: one.time
        for one in events
        if one.reason in _ENDS and one.attempt == account.attempt
    }
    at = (
        (account.started or account.created) - account.queued_seconds
        if account.attempt > 1
        else account.created
    )
    found = []
    for stage in STAGES[:-1]:
        if stage in times:
            found.append((stage, at, max(at, times[stage])))
            at = max(at, times[stage])
    begun = account.running or (at if "mpi_init" in times else None)
    if begun is not None and account.ended is not None:
        found.append(("run", begun, max(begun, account.ended)))
    return found


def stages(account: Account, events: Iterable[Event]) -> dict[str, float]:
    return {stage: end - begin for stage, begin, end in moments(account, events)}
