"""The checkers of the reference workloads: they take what is right and name what is not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mpijob import checks
from mpijob.formats.jobfile import jobfile_reader

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "workloads"
GOOD = {
    "horovod-mnist": "first=2.3 last=0.1 ranks=4 accuracy=0.97",
    "intel-tensorflow": "first=0.7 last=0.1 ranks=4 accuracy=0.95 library=Intel(R)-MPI-Library",
    "bert": "first=10.3 last=6.1 ranks=4 tokens_per_second=51200",
    "resnet50": "first=6.9 last=5.0 ranks=4 images_per_second=1300.5",
    "deepspeed-7b": "first=10.4 last=7.0 ranks=32 tokens_per_second=90000 checkpoint=/checkpoints resumed=no",
}


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("workload_check", FOLDER / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.req("D-workloads")
@pytest.mark.parametrize("name", GOOD)
def test_a_right_result_is_taken(check: ModuleType, name: str) -> None:
    said = check.result(f"[Rank-0] step 1\n[Rank-0] RESULT {GOOD[name]}\n")
    assert list(check.complaints(name, said, int(said["ranks"]))) == []


@pytest.mark.req("D-workloads")
@pytest.mark.parametrize(
    ("name", "line", "complaint"),
    [
        ("bert", "first=10 last=9.9 ranks=4 tokens_per_second=5", "the loss fell from 10 to 9.9, not to 0.9"),
        ("bert", "first=10 last=nan ranks=4 tokens_per_second=5", "the loss fell from 10 to nan"),
        ("bert", "first=10 last=5 ranks=1 tokens_per_second=5", "1 ranks took part, not 4"),
        ("bert", "first=10 last=5 ranks=4", "tokens_per_second is not told"),
        ("horovod-mnist", "first=2 last=1 ranks=4 accuracy=0.5", "accuracy is 0.5, not above 0.95"),
        ("intel-tensorflow", "accuracy=0.95 ranks=4 library=MPICH", "library is MPICH, without Intel"),
    ],
)
def test_a_wrong_result_is_named(check: ModuleType, name: str, line: str, complaint: str) -> None:
    assert any(complaint in one for one in check.complaints(name, check.result(f"RESULT {line}"), 4))


def test_a_log_without_a_result_is_not_a_result() -> None:
    argv = [sys.executable, str(FOLDER / "check.py"), "resnet50"]
    done = subprocess.run(argv, input="[Rank-0] step 1\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (
        1,
        "there is no RESULT line: the job did not come to its end\n",
    )


@pytest.mark.req("D-workloads", "US5")
@pytest.mark.parametrize("name", GOOD)
def test_a_workload_is_a_job_that_is_well_formed_and_brings_its_program(name: str) -> None:
    job = jobfile_reader.read((FOLDER / f"{name}.yaml").read_bytes())
    assert checks.run(job) == ()
    assert all((FOLDER / file).is_file() for file in job.code.include)
    assert job.command[-1] in job.code.include


def test_the_table_of_workloads_names_each_and_says_what_was_run() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(GOOD)
    assert all("yes" in row or "not run" in row for row in rows)
