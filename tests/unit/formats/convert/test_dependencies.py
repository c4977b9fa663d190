"""Scripts that wait for another job: which end of it they wait for, and what does the same here."""

from __future__ import annotations

import pytest

from mpijob.client.convert.convert_jobs import Conversion, FieldEntry, FieldOutcome, convert

pytestmark = pytest.mark.req("C-hpc", "D-migrate")


def waiting(dependency: str) -> Conversion:
    (one,) = convert(f"#!/bin/bash\n#SBATCH -J x -n 1 -d {dependency}\nsrun ./a\n", file="x.sbatch")
    return one


def told(one: Conversion) -> FieldEntry:
    return next(entry for entry in one.entries if entry.field == "--dependency")


@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("afternotok:17", "FIRST has failed: mpijob run -f FILE --after failed:FIRST ("),
        ("afterany:17:18", "FIRST has ended, successful or not: mpijob run -f FILE --after any:FIRST ("),
        ("after:17+5", "FIRST has started: mpijob wait FIRST --for Running; mpijob run -f FILE ("),
        ("singleton", "the earlier job of the same name has ended: mpijob wait x; mpijob run -f FILE"),
    ],
)
def test_a_script_that_waits_for_another_end_than_success_gets_the_line_that_does_so(
    kind: str, begins: str
) -> None:
    one = waiting(kind)
    assert told(one).todo.startswith(f"start it when {begins}")
    assert one.after == ""


@pytest.mark.parametrize("kind", ["afterok:17", "aftercorr:17", "17"])
def test_a_script_that_waits_for_success_runs_with_after(kind: str) -> None:
    one = waiting(kind)
    assert (one.after, told(one).fate) == ("FIRST", FieldOutcome.DROPPED)
    assert "--after FIRST" in told(one).todo


def test_a_script_that_waits_for_both_is_told_both() -> None:
    both = waiting("afterok:1,afterany:2")
    assert (both.after, "mpijob run -f FILE --after any:FIRST" in str(both.entries)) == ("FIRST", True)
