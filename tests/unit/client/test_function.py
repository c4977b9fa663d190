"""A Python function as a job: what travels, what cannot, and what comes back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mpijob import MPIJob, checks
from mpijob.client.submit import function
from mpijob.errors import InvalidJob, NotFound
from mpijob.model import Code, LogLine, Role

OUTSIDE = 3


def train(steps: int, rate: float = 0.1) -> dict[str, float]:
    import math

    def step(loss: float) -> float:
        return loss * (1 - rate)

    loss = 1.0
    for _ in range(steps):
        loss = step(loss)
    return {"loss": math.floor(loss * 1000) / 1000}


def uses_outside() -> int:
    return OUTSIDE


def default_from_outside(x: int = OUTSIDE) -> int:
    return x


def uses_a_module() -> str:
    return json.dumps({})


@partial(lambda f: f)
def decorated() -> None: ...


async def coroutine() -> None: ...


def nested_outside() -> list[int]:
    return [OUTSIDE for _ in range(2)]


def closure() -> Callable[[], int]:
    hidden = 5

    def inner() -> int:
        return hidden

    return inner


def test_a_function_becomes_a_well_formed_job() -> None:
    job = function.job(train, {"steps": 3}, workers=4)
    assert (job.name, job.workers, job.command) == ("train", 4, ("python", "-m", "mpi4py", "train.py"))
    assert checks.run(job, max_workers=100) == ()
    assert isinstance(job, MPIJob)


def test_other_files_go_along_and_the_name_can_be_chosen() -> None:
    job = function.job(train, {"steps": 1}, name="my-training", code=Code(files={"data.txt": "1"}))
    assert job.name == "my-training"
    assert sorted(job.code.files) == ["data.txt", "train.py"]


def test_the_generated_program_runs_and_writes_its_result(tmp_path: Path) -> None:
    job = function.job(train, {"steps": 2, "rate": 0.5})
    for name, text in job.code.files.items():
        (tmp_path / name).write_text(text)
    fake = tmp_path / "mpi4py"
    fake.mkdir()
    (fake / "__init__.py").write_text(
        "class MPI:\n    class COMM_WORLD:\n        Get_rank = staticmethod(lambda: 0)\n"
    )
    run = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads((tmp_path / "result.json").read_text()) == {"loss": 0.25}
    line = LogLine(1, run.stdout.rstrip("\n").encode(), Role.RANK, rank=0)
    assert function.result("train", [line]) == {"loss": 0.25}


def test_a_job_without_a_result_says_so() -> None:
    with pytest.raises(NotFound, match="no result yet"):
        function.result("train", [LogLine(1, b"hello", Role.RANK, rank=0)])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda: 1, "lambda"),
        (closure(), "'hidden'"),
        (uses_outside, "'OUTSIDE'"),
        (nested_outside, "'OUTSIDE'"),
        (default_from_outside, "'OUTSIDE'"),
        (uses_a_module, "'json', defined outside"),
        (coroutine, "is not a plain function"),
        (print, "not a plain function"),
        (Path("x").exists, "not a plain function"),
        (decorated, "decorators"),
    ],
)
def test_functions_that_cannot_travel_are_refused_with_the_reason(given: Any, says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        function.job(given)


def test_a_function_without_source_is_refused() -> None:
    space: dict[str, Any] = {}
    exec("def typed_in(): return 1", space)
    with pytest.raises(InvalidJob, match="source of typed_in"):
        function.job(space["typed_in"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "missing"),
        ({"steps": 1, "x": 2}, "unexpected"),
        ({"steps": {1}}, "serializable"),
        ({"steps": float("nan")}, "JSON"),
    ],
)
def test_arguments_that_cannot_travel_are_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        function.job(train, arguments)


@pytest.mark.security
def test_arguments_travel_as_data_never_as_code() -> None:
    def echo(text: str) -> str:
        return text

    evil = "'''; import os; os._exit(9) #\n\"\"\"{}"
    job = function.job(echo, {"text": evil})
    space: dict[str, Any] = {"__name__": "not_main"}
    exec(job.code.files["echo.py"], space)
    call = next(line for line in job.code.files["echo.py"].splitlines() if "_value = " in line)
    exec(call.strip(), space)
    assert space["_value"] == evil
