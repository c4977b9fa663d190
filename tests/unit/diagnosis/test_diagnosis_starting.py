"""A program that is not there: what a shell and Python say of it, and who only went on without it."""

import json
from typing import Any

import pytest
from tests.unit.cli_support import Cli
from tests.unit.failures import FOLDER, a_job, said

from mpijob.diagnosis import Evidence, explain
from mpijob.errors import Finding
from mpijob.model import Exit

TRACEBACK = '\nTraceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: bad'


def told(text: str, code: int, **known: Any) -> tuple[Finding, ...]:
    ranks = (Exit(code=code, index=0, worker=0, time=2.0),)
    return explain(Evidence(spec=a_job(), logs=said(text, rank=0, worker=0), ranks=ranks, **known))


@pytest.mark.parametrize(
    "text",
    [
        "bash: line 1: gmx_mpi: command not found",
        "bash: gmx_mpi: command not found",
        "/work/run.sh: line 7: gmx_mpi: command not found",
        "sh: 1: gmx_mpi: not found",
        "./run.sh: 3: gmx_mpi: not found",
        "rank.sh: line 3: ./gmx_mpi: No such file or directory",
        "/work/rank.sh: line 14: ./gmx_mpi: No such file or directory",
    ],
)
def test_a_program_that_a_shell_does_not_find_is_named(text: str) -> None:
    (first,) = told(text, 127)
    assert (first.code, first.rank, first.evidence) == ("MISSING_EXECUTABLE", 0, (f"Rank-0 stderr: {text}",))
    assert first.message.removeprefix("./") == "gmx_mpi does not exist on worker 0."


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        ("run.sh: line 1: module: command not found", 3, "RANK_EXIT"),
        ("run.sh: line 1: module: command not found" + TRACEBACK, 1, "PYTHON_EXCEPTION"),
        ("run.sh: line 1: module: command not found" + TRACEBACK, 127, "PYTHON_EXCEPTION"),
        ("bash: line 1: orted: command not found", 127, "MPI_NOT_ON_WORKER"),
        ("the answer: 42: not found", 1, "PROGRAM_ERROR"),
        ("rank.sh: line 3: in/mesh.dat: No such file or directory", 1, "PROGRAM_ERROR"),
    ],
)
def test_a_shell_that_went_on_without_a_program_did_not_fail_of_it(text: str, code: int, cause: str) -> None:
    assert [finding.code for finding in told(text, code)] == [cause]


@pytest.mark.parametrize(
    ("text", "started"),
    [
        (
            "/usr/bin/python3: Error while finding module specification for 'mypkg.train' "
            "(ModuleNotFoundError: No module named 'mypkg')",
            "mypkg.train",
        ),
        ("/usr/bin/python3.11: No module named mytrain", "mytrain"),
    ],
)
def test_a_module_that_python_is_started_with_and_does_not_have_asks_for_the_code(
    text: str, started: str
) -> None:
    (first,) = told(text, 1)
    assert (first.code, first.evidence) == ("IMPORT_ERROR", (f"Rank-0 stderr: {text}",))
    assert first.hint.startswith(
        f"if {started} is your own module, upload it: set code.path to its directory"
    )


@pytest.mark.parametrize("family", ["intel", "mpich", "openmpi"])
@pytest.mark.parametrize(
    ("case", "code", "summary"),
    [
        ("shell_command_not_found", "MISSING_EXECUTABLE", "gmx_mpi does not exist where the ranks run."),
        (
            "python_m_not_found",
            "IMPORT_ERROR",
            "could not import 'mypkg': the module is not installed there.",
        ),
    ],
)
def test_why_knows_both_from_a_log_alone(family: str, case: str, code: str, summary: str) -> None:
    answer = json.loads(Cli()("why", "--log", str(FOLDER / family / f"{case}.txt"), "-o", "json").stdout)
    assert answer["findings"][0]["code"] == code
    assert summary in answer["summary"]


def test_a_deadline_is_doubled_as_an_estimate_and_says_so() -> None:
    first = explain(Evidence(spec=a_job(deadline_seconds=60), reason="DeadlineExceeded"))[0]
    assert "an estimate" in first.fixes[0].text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "heat.c:3:1: error: expected ';' before '}' token",
            "Compiling heat.c failed at line 3: expected ';' before '}' token",
        ),
        (
            "src/heat.c:1:10: fatal error: grid.h: No such file or directory",
            "Compiling src/heat.c failed at line 1: grid.h: No such file or directory",
        ),
    ],
)
def test_what_a_compiler_refuses_is_the_cause_in_its_own_words(line: str, message: str) -> None:
    text = f"heat.c: In function 'main':\n{line}\n    3 | }}\n      | ^\nmake: *** [Makefile:2: heat] Error 1"
    (first,) = told(text, 2)
    assert (first.code, first.message, first.evidence[0]) == (
        "COMPILE_ERROR",
        message,
        f"Rank-0 stderr: {line}",
    )
