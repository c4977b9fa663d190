"""Real objects of real jobs, saved from a real cluster at a telling moment: what is said of each of them.

How they were made, and what was left out of them, is told in tests/fixtures/cluster/README.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpijob.backends.kubernetes.status import derive_state
from mpijob.backends.kubernetes.status.derive_state import Objects
from mpijob.model import JobState, Phase

FOLDER = Path(__file__).parents[2] / "fixtures" / "cluster"
CASES = sorted(path.stem for path in FOLDER.glob("*.json"))

# case: phase, reason, first finding, the worker that failed
EXPECTED: dict[str, tuple[str, str, str, int | None]] = {
    "foreign-trainjob-failing": ("Running", "Retrying", "", None),
    "foreign-trainjob-succeeded": ("Succeeded", "Completed", "", None),
    "kueue-after-preemption": ("Succeeded", "Completed", "", None),
    "kueue-preempted": ("Queued", "Preempted", "PREEMPTED", None),
    "kueue-preempted-at-once": ("Queued", "Preempted", "PREEMPTED", None),
    "kueue-queue-missing": ("Queued", "QueueMissing", "QUEUE_MISSING", None),
    "kueue-running": ("Running", "RanksRunning", "", None),
    "kueue-too-large": ("Queued", "QuotaTooSmall", "QUOTA_TOO_SMALL", None),
    "kueue-waiting": ("Queued", "WaitingForResources", "", None),
    "mpijob-after-resume": ("Pending", "NotResumed", "NOT_RESUMED", None),
    "mpijob-invalid": ("Failed", "EngineRefused", "ENGINE_REFUSED", None),
    "mpijob-pod-deleted": ("Failed", "WorkerLost", "WORKER_LOST", 1),
    "mpijob-pod-deleted-at-once": ("Failed", "WorkerLost", "WORKER_LOST", 1),
    "mpijob-rank-exit": ("Failed", "RankFailed", "RANK_EXIT", 1),
    "mpijob-resumed": ("Pending", "StartingWorkers", "", None),
    "mpijob-succeeded": ("Succeeded", "Completed", "", None),
    "mpijob-suspended": ("Suspended", "Suspended", "", None),
    "mpijob-worker-killed": ("Failed", "WorkerLost", "WORKER_LOST", 1),
    "mpijob-worker-killed-at-once": ("Failed", "WorkerLost", "WORKER_LOST", 1),
    "mpijob-wrong-mpi": ("Failed", "WorldNotStarted", "MPI_NOT_ON_WORKER", None),
    "trainjob-after-resume": ("Succeeded", "Completed", "", None),
    "trainjob-cancelled": ("Cancelled", "Cancelled", "", None),
    "trainjob-cancelling": ("Running", "Cancelling", "", None),
    "trainjob-claim-missing": ("Pending", "VolumeNotReady", "VOLUME_NOT_READY", None),
    "trainjob-config-missing": ("Pending", "SettingsMissing", "SETTINGS_MISSING", None),
    "trainjob-deadline": ("Failed", "DeadlineExceeded", "IMAGE_NOT_FOUND", None),
    "trainjob-deadline-running": ("Failed", "DeadlineExceeded", "DEADLINE_EXCEEDED", None),
    "trainjob-drained": ("Failed", "WorkerLost", "WORKER_LOST", 0),
    "trainjob-drained-at-once": ("Failed", "WorkerLost", "WORKER_LOST", 0),
    "trainjob-image-missing": ("Pending", "ImageNotFound", "IMAGE_NOT_FOUND", None),
    "trainjob-image-name": ("Pending", "ImageNameInvalid", "IMAGE_NAME_INVALID", None),
    "trainjob-launcher-killed": ("Failed", "LauncherFailed", "LAUNCHER_KILLED", None),
    "trainjob-network-blocked": ("Failed", "WorldNotStarted", "NETWORK_BLOCKED", 1),
    "trainjob-no-sshd": ("Failed", "NoSshServer", "NO_SSHD", 1),
    "trainjob-node-lost": ("Failed", "WorkerLost", "NODE_LOST", 0),
    "trainjob-node-silent": ("Initializing", "WorkerLost", "", None),
    "trainjob-oom": ("Failed", "MemoryLimitExceeded", "MEMORY_LIMIT", 1),
    "trainjob-openmpi5": ("Succeeded", "Completed", "", None),
    "trainjob-pod-deleted": ("Failed", "WorkerLost", "WORKER_LOST", 1),
    "trainjob-pod-deleted-at-once": ("Failed", "WorkerLost", "WORKER_LOST", 1),
    "trainjob-policy": ("Pending", "PolicyRefused", "POLICY_REFUSED", None),
    "trainjob-preempted": ("Failed", "WorkerPreempted", "WORKER_PREEMPTED", 0),
    "trainjob-preempted-at-once": ("Failed", "WorkerPreempted", "WORKER_PREEMPTED", 0),
    "trainjob-quota": ("Pending", "QuotaUsedUp", "QUOTA_USED_UP", None),
    "trainjob-rank-exit": ("Failed", "RankFailed", "RANK_EXIT", 1),
    "trainjob-rank-exit-late": ("Failed", "RankFailed", "RANK_EXIT", 1),
    "trainjob-refused": ("Failed", "EngineRefused", "ENGINE_REFUSED", None),
    "trainjob-secret-missing": ("Pending", "SettingsMissing", "SETTINGS_MISSING", None),
    "trainjob-succeeded": ("Succeeded", "Completed", "", None),
    "trainjob-succeeded-early": ("Succeeded", "Completed", "", None),
    "trainjob-suspended": ("Suspended", "Suspended", "", None),
    "trainjob-unschedulable": ("Pending", "Unschedulable", "UNSCHEDULABLE", None),
    "trainjob-worker-killed": ("Failed", "WorkerLost", "WORKER_LOST", 1),
    "trainjob-worker-killed-at-once": ("Failed", "WorkerLost", "WORKER_LOST", 1),
}


def objects(case: str) -> tuple[dict[str, Any], Objects]:
    told = json.loads((FOLDER / f"{case}.json").read_text())
    fields = {key: told[key] for key in Objects.__struct_fields__ if key in told}
    return told, Objects(**fields)


def look(case: str, **less: Any) -> JobState:
    told, seen = objects(case)
    seen = Objects(**({key: getattr(seen, key) for key in Objects.__struct_fields__} | less))
    log = "" if less else told.get("launcher_log", "")
    return derive_state.derive(seen, now=told["now"], launcher_log=log, logs=told.get("logs", {}))


def failed_worker(state: JobState) -> int | None:
    return next((one.index for one in state.workers if one.phase is Phase.FAILED), None)


@pytest.mark.thorough
@pytest.mark.req("US1-3", "FR-OBS-005", "C-top10")
@pytest.mark.parametrize("case", CASES)
def test_a_real_job_is_told_as_it_was(case: str) -> None:
    state = look(case)
    code = state.findings[0].code if state.findings else ""
    assert (state.phase.value, state.reason, code, failed_worker(state)) == EXPECTED[case]


def test_every_expectation_has_its_objects() -> None:
    assert sorted(EXPECTED) == CASES


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_what_ended_a_real_job_or_keeps_it_waiting_is_told_with_a_remedy(case: str) -> None:
    for finding in look(case).findings:
        assert finding.message
        assert finding.fixes


@pytest.mark.thorough
@pytest.mark.req("A-edge-403")
@pytest.mark.parametrize("part", ["runtime", "jobset", "jobs", "pods", "workload", "events"])
@pytest.mark.parametrize("case", CASES)
def test_one_kind_of_object_that_may_not_be_read_leaves_the_rest_told(case: str, part: str) -> None:
    empty: Any = None if part in ("runtime", "jobset", "workload") else ()
    state, whole = look(case, **{part: empty}), look(case)
    assert (state.ref, state.workers_wanted, state.world) == (whole.ref, whole.workers_wanted, whole.world)
    if whole.phase is Phase.SUCCEEDED:  # without its pods it may still be told as running, never as failed
        assert state.phase not in (Phase.FAILED, Phase.CANCELLED)
    if state.phase is Phase.SUCCEEDED:
        assert whole.phase is Phase.SUCCEEDED


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_a_list_never_calls_well_what_a_close_look_calls_failed(case: str) -> None:
    _, seen = objects(case)
    brief, close = derive_state.summary(seen.job, seen.workload, seen.pods), look(case)
    assert (brief.phase is Phase.SUCCEEDED) == (close.phase is Phase.SUCCEEDED)
    assert brief.phase.final <= close.phase.final
