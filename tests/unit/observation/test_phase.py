"""The phase is derived from facts; success needs every one of them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.model import Exit, Phase
from mpijob.observation.state.phase import Observation, Reason, derive, failure

WELL = Observation(
    workers_wanted=2,
    workers_ready=2,
    world_planned=4,
    world_proved=4,
    launcher_started=True,
    ended=True,
    launcher=Exit(code=0, time=9.0),
    workers=tuple(Exit(code=0, index=n, time=9.0) for n in range(2)),
    ranks=tuple(Exit(code=0, index=n, worker=n // 2, time=8.0) for n in range(4)),
)


def but(**changes: Any) -> Observation:
    return msgspec.structs.replace(WELL, **changes)


def with_rank(exit: Exit) -> Observation:
    return but(ranks=(*WELL.ranks[:3], exit))


@pytest.mark.req("FR-OBS-005")
def test_success_is_launcher_workers_and_ranks_with_0_and_the_planned_world() -> None:
    assert derive(WELL) == (Phase.SUCCEEDED, Reason.COMPLETED, "all 4 ranks ended with 0")


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (but(launcher=Exit(code=1)), Reason.LAUNCHER_FAILED),
        (but(launcher=None), Reason.LAUNCHER_UNACCOUNTED),
        (but(workers=WELL.workers[:1]), Reason.WORKER_LOST),
        (with_rank(Exit(code=1, index=3)), Reason.RANK_FAILED),
        (but(workers=(WELL.workers[0], Exit(signal=9, index=1))), Reason.WORKER_FAILED),
        (but(ranks=WELL.ranks[:3]), Reason.RANK_UNACCOUNTED),
        (but(world_proved=None), Reason.WORLD_UNPROVED),
        (but(world_proved=1), Reason.WORLD_DIFFERS),
        (but(workers_lost=(1,)), Reason.WORKER_LOST),
        (but(deadline_passed=True), Reason.DEADLINE_EXCEEDED),
        (but(stopped=Reason.DISK_FULL), Reason.DISK_FULL),
    ],
)
def test_one_missing_proof_is_enough_for_failure(seen: Observation, reason: Reason) -> None:
    assert derive(seen)[:2] == (Phase.FAILED, reason)


@pytest.mark.req("SC-005", "A-edge-worker")
def test_a_launcher_that_returns_0_after_losing_a_worker_has_failed() -> None:
    standing = derive(but(workers=(WELL.workers[0], Exit(signal=9, index=1, time=3.0))))
    assert (standing.phase, standing.message) == (Phase.FAILED, "worker 1 was ended by signal 9")


@pytest.mark.parametrize(
    ("worker", "launcher", "reason"),
    [
        (Exit(code=1, index=1, time=5.0), Exit(signal=9, time=5.1), Reason.LAUNCHER_FAILED),
        (Exit(signal=9, index=1, time=5.0), Exit(signal=9, time=5.1), Reason.WORKER_FAILED),
        (Exit(code=1, index=1, time=5.0), Exit(code=1, time=5.1), Reason.WORKER_FAILED),
    ],
    ids=[
        "its agents give up before it is seen",
        "an agent was killed first",
        "it ends because an agent failed",
    ],
)
def test_agents_that_give_up_with_a_killed_launcher_are_its_doing(
    worker: Exit, launcher: Exit, reason: Reason
) -> None:
    assert derive(but(workers=(WELL.workers[0], worker), launcher=launcher)).reason is reason


def test_the_exit_that_came_first_is_the_reason_not_the_launchers() -> None:
    seen = but(launcher=Exit(code=255, time=7.0), ranks=(*WELL.ranks[:3], Exit(signal=11, index=3, time=5.0)))
    assert derive(seen) == (Phase.FAILED, Reason.RANK_FAILED, "rank 3 was ended by signal 11")


def test_what_we_ended_ourselves_is_not_the_reason() -> None:
    ranks = (Exit(signal=9, index=0, time=1.0, by_us=True), Exit(code=3, index=1, time=2.0))
    assert derive(but(ranks=ranks, launcher=Exit(code=255, time=3.0))).message == "rank 1 exited with 3"


def test_where_ranks_cannot_be_watched_their_absence_proves_nothing() -> None:
    assert derive(but(ranks=(), ranks_watched=False)).phase is Phase.SUCCEEDED
    assert (
        derive(but(ranks=(), ranks_watched=False, census=False, world_proved=None)).phase is Phase.SUCCEEDED
    )


@pytest.mark.parametrize(
    ("seen", "phase", "message"),
    [
        (Observation(queued=True, waiting_for="Waiting for 4 GPUs"), Phase.QUEUED, "Waiting for 4 GPUs"),
        (Observation(workers_wanted=4, workers_ready=3), Phase.PENDING, "3/4 workers ready"),
        (
            Observation(workers_wanted=4, workers_ready=4),
            Phase.INITIALIZING,
            "4 workers ready, MPI is starting",
        ),
        (
            Observation(workers_wanted=4, workers_ready=4, launcher_started=True),
            Phase.INITIALIZING,
            "4 workers ready, MPI is starting",
        ),
        (
            Observation(
                workers_wanted=4, workers_ready=4, launcher_started=True, world_planned=8, world_proved=8
            ),
            Phase.RUNNING,
            "8 ranks on 4 workers",
        ),
        (
            Observation(workers_wanted=1, workers_ready=1),
            Phase.INITIALIZING,
            "1 worker ready, MPI is starting",
        ),
        (
            Observation(
                workers_wanted=1, workers_ready=1, launcher_started=True, world_planned=1, world_proved=1
            ),
            Phase.RUNNING,
            "1 rank on 1 worker",
        ),
        (Observation(queued=True, retry_in_seconds=20.0), Phase.QUEUED, "the next attempt starts in 20 s"),
    ],
)
def test_a_job_moves_from_queued_to_running(seen: Observation, phase: Phase, message: str) -> None:
    assert (derive(seen).phase, derive(seen).message) == (phase, message)


def test_a_job_whose_supervisor_is_gone_has_failed() -> None:
    running = but(ended=False, supervisor_alive=False, launcher=None, workers=(), ranks=())
    assert derive(running)[:2] == (Phase.FAILED, Reason.SUPERVISOR_LOST)
    assert derive(msgspec.structs.replace(running, ended=True))[:2] == (Phase.FAILED, Reason.SUPERVISOR_LOST)


def test_cancelling_is_seen_at_once_and_final_when_nothing_is_left() -> None:
    going = but(ended=False, cancel_requested=True, launcher=None)
    assert derive(going)[:2] == (Phase.RUNNING, Reason.CANCELLING)
    assert derive(but(cancel_requested=True, launcher=Exit(signal=15))).phase is Phase.CANCELLED
    assert derive(Observation(queued=True, cancel_requested=True)).phase is Phase.CANCELLED


def test_suspended_means_that_nothing_is_held() -> None:
    assert derive(but(ended=False, suspend_requested=True)).reason is Reason.SUSPENDING
    assert derive(but(suspend_requested=True)).phase is Phase.SUSPENDED


def test_a_failure_is_told_before_the_rest_has_ended() -> None:
    seen = but(ended=False, launcher=None, workers=(), ranks=(Exit(code=1, index=2, time=1.0),))
    failed = failure(seen)
    assert failed is not None
    assert failed.reason is Reason.RANK_FAILED
    assert derive(seen) == (
        Phase.RUNNING,
        Reason.RANK_FAILED,
        "rank 2 exited with 1; stopping the remaining processes",
    )


def test_deleting_wins_over_everything() -> None:
    assert derive(but(delete_requested=True, cancel_requested=True)).phase is Phase.DELETING


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255), st.integers(0, 5))
def test_no_bad_code_anywhere_passes_for_success(launcher: int, worker: int, rank: int, world: int) -> None:
    seen = but(
        launcher=Exit(code=launcher),
        workers=(WELL.workers[0], Exit(code=worker, index=1)),
        ranks=(*WELL.ranks[:3], Exit(code=rank, index=3)),
        world_proved=world,
    )
    assert (derive(seen).phase is Phase.SUCCEEDED) == (launcher == worker == rank == 0 and world == 4)
