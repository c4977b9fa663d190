"""Which rank ended first: what the engine saw, what the launcher names, and what exit codes mean."""

from __future__ import annotations

import pytest
from tests.unit.failures import a_job

from mpijob.diagnosis import Evidence, explain
from mpijob.model import Exit, Family, LogLine, Role
from mpijob.model.spec.job import Launch

_ENDED_BY_ZERO = (
    "prterun has exited due to process rank 1 with PID 9 on node n1 exiting\n"
    "improperly. There are three reasons this could occur:"
)
_LOST = "[n1:00005] [[27899,0],0] ORTE_ERROR_LOG: Out of resource in file ../../../orte/util/show_help.c at line 501"
_DAEMON = (
    "ORTE has lost communication with a remote daemon.\n\n  Remote daemon: [[1,0],1] on node job-worker-0"
)


def _of_launcher(text: str) -> tuple[LogLine, ...]:
    return tuple(LogLine(9 * 10**9, line.encode(), Role.LAUNCHER) for line in text.splitlines())


def test_ranks_that_mpi_ended_after_one_left_too_early_are_no_cause() -> None:
    ranks = (
        Exit(code=0, index=1, worker=1, time=5.0),
        Exit(signal=15, index=2, worker=2, time=5.2, by_us=True),
        Exit(signal=9, index=0, worker=0, time=5.3),
    )
    seen = Evidence(
        spec=a_job(), ranks=ranks, launcher=Exit(code=1, time=5.4), logs=_of_launcher(_ENDED_BY_ZERO)
    )
    assert [found.code for found in explain(seen)] == ["NO_FINALIZE"]


@pytest.mark.parametrize(
    ("code", "expected", "error"),
    [
        (5, "MPI_CALL_ERROR", "MPI_ERR_COMM"),
        (15, "TRUNCATED_MESSAGE", "MPI_ERR_TRUNCATE"),
        (6, "INVALID_RANK", "rank"),
        (99, "RANK_EXIT", "99"),
    ],
)
def test_an_exit_code_names_the_failed_call_where_open_mpi_dropped_its_report(
    code: int, expected: str, error: str
) -> None:
    ranks = (Exit(code=code, index=2, worker=1, time=5.0),)
    seen = Evidence(
        spec=a_job(),
        family=Family.OPENMPI,
        ranks=ranks,
        launcher=Exit(code=code, time=5.1),
        logs=_of_launcher(_LOST),
    )
    (first, *_) = explain(seen)
    assert (first.code, error in first.message) == (expected, True)


def test_an_exit_code_alone_names_no_call() -> None:
    seen = Evidence(spec=a_job(), family=Family.OPENMPI, ranks=(Exit(code=5, index=2, worker=1, time=5.0),))
    assert [found.code for found in explain(seen)] == ["RANK_EXIT"]


@pytest.mark.parametrize(
    ("launch", "code"), [(Launch(bind_to="core"), "BAD_BINDING"), (Launch(), "DAEMON_LOST")]
)
def test_a_daemon_that_ends_before_a_rank_begins_is_blamed_on_the_binding_where_there_is_one(
    launch: Launch, code: str
) -> None:
    seen = Evidence(
        spec=a_job(launch=launch),
        family=Family.OPENMPI,
        reason="LauncherFailed",
        launcher=Exit(code=205, time=5.0),
        logs=_of_launcher(_DAEMON),
    )
    assert explain(seen)[0].code == code
