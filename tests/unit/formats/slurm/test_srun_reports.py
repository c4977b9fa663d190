"""What srun says of tasks that ended badly: those named first are the cause, the rest follows."""

from __future__ import annotations

import pytest

from mpijob.formats.slurm import srun_reports

ENDS_ALL = b"srun: launch/slurm: _step_signal: Terminating StepId=67.0"
NOTHING: frozenset[int] = frozenset()


def test_tasks_named_before_srun_ended_the_others_are_the_cause() -> None:
    found = srun_reports.read(
        [
            b"srun: error: n2: task 1: Exited with exit code 3",
            ENDS_ALL,
            b"srun: error: n1: task 0: Terminated",
            b"srun: error: n[3-4]: tasks 2-3: Terminated",
        ]
    )
    assert (found.first, found.out_of_memory) == (frozenset({1}), NOTHING)


@pytest.mark.parametrize(
    ("tasks", "first"),
    [(b"tasks 0-2,5", {0, 1, 2, 5}), (b"task 7", {7}), (b"tasks 4-5,9-10", {4, 5, 9, 10})],
)
def test_lists_and_ranges_of_tasks_are_read(tasks: bytes, first: set[int]) -> None:
    line = b"srun: error: n[1-4]: " + tasks + b": Segmentation fault (core dumped)"
    assert srun_reports.read([line, b"srun: Terminating StepId=67.0"]).first == first


def test_where_srun_ended_nothing_no_task_was_first() -> None:
    assert srun_reports.read([b"srun: error: n2: task 1: Exited with exit code 3"]) == (NOTHING, NOTHING)
    assert srun_reports.read([]) == (NOTHING, NOTHING)


def test_a_task_that_ran_out_of_memory_is_known_even_where_it_is_named_late() -> None:
    lines = [
        b"srun: error: n1: task 0: Exited with exit code 1",
        ENDS_ALL,
        b"srun: error: n2: task 1: Out Of Memory",
    ]
    found = srun_reports.read(lines)
    assert (found.first, found.out_of_memory) == (frozenset({0}), frozenset({1}))


@pytest.mark.security
@pytest.mark.parametrize(
    "line",
    [
        b"srun: error: n1: tasks 0-999999999: Killed",
        b"srun: error: n1: tasks " + b"1," * 5000 + b": Killed",
        b"srun: error: n1: tasks -: Killed",
        b"srun: error: n1: tasks 3-1: Killed",
        b"srun: error: n1: task : Killed",
        b"my program says: srun: error: n1: task 1: Killed",
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_a_line_that_names_no_real_tasks_names_none(line: bytes) -> None:
    assert srun_reports.read([line, ENDS_ALL]) == (NOTHING, NOTHING)


@pytest.mark.parametrize(
    ("line", "follows"),
    [
        (ENDS_ALL, True),
        (b"srun: error: n1: task 0: Terminated", True),
        (b"srun: Job step aborted: Waiting up to 7 seconds for job step to finish.", True),
        (b"slurmstepd-n1: error: *** STEP 67.0 ON n1 CANCELLED AT 2026-11-17T18:25:46 ***", True),
        (b"slurmstepd-n1: error:  mpi/pmix_v4: pmixp_coll_ring_reset_if_to: n1: collective timeout", True),
        (b"srun: error: n2: task 1: Out Of Memory", False),
        (b"slurmstepd-n2: error: Detected 1 oom-kill event(s) in StepId=2.0.", False),
        (
            b"slurmstepd-n1: error: *** STEP 67.0 ON n1 CANCELLED AT 2026-11-17T18:25:46 DUE TO NODE FAILURE ***",
            False,
        ),
        (b"loss nan at step 12", False),
    ],
)
def test_a_line_that_only_follows_is_told_from_one_that_says_why(line: bytes, follows: bool) -> None:
    assert srun_reports.follows(line) is follows
