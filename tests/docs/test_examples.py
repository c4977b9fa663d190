"""The examples, run as a user runs them: real jobs on the local engine, an empty home each time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.readers import ROOT, an_environment

pytestmark = pytest.mark.engine
EXAMPLES = ROOT / "examples"
MPIJOB = str(Path(sys.executable).parent / "mpijob")


def ran(folder: Path, *argv: str, **environ: str) -> str:
    """Return what an example says on stdout; it must end with 0."""
    environment = {**an_environment(folder), **environ}
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def result(said: str) -> dict[str, str]:
    """Return the words of the line in which an example tells its result."""
    (line,) = re.findall(r"RESULT (.*)", said)
    return dict(re.findall(r"(\w+)=('[^']*'|\[[^]]*\]|\S+)", line))


def with_families(folder: Path) -> str:
    """Return a settings file that knows where the tests have Open MPI and Intel MPI."""
    libraries = Path(os.environ["MPIJOB_TEST_MPI"]).resolve()
    lines = [f'{family} = "{libraries / family}"' for family in ("openmpi", "intel")]
    (folder / "settings.toml").write_text("\n".join(["[mpi_directories]", *lines, ""]))
    return str(folder / "settings.toml")


@pytest.mark.req("FR-SDK-005", "SC-001", "FR-SDK-001")
def test_the_first_job_in_the_sdk_prints_what_every_rank_said(tmp_path: Path) -> None:
    said = ran(tmp_path, sys.executable, str(EXAMPLES / "sdk_first_job.py"))
    assert sorted(said.splitlines()) == ["Rank-0 hello", "Rank-1 hello"]


@pytest.mark.req("SC-001")
def test_the_first_job_in_the_sdk_has_at_most_ten_lines() -> None:
    lines = (EXAMPLES / "sdk_first_job.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 10


@pytest.mark.req("FR-SDK-005")
def test_a_function_runs_on_every_rank_and_its_result_comes_back(tmp_path: Path) -> None:
    said = ran(tmp_path, sys.executable, str(EXAMPLES / "function_job.py"))
    assert 3.1 < float(said.removeprefix("pi is about ")) < 3.2


def test_the_hello_job_greets_from_both_ranks_and_adds_up(tmp_path: Path) -> None:
    said = ran(tmp_path, MPIJOB, "run", "-f", str(EXAMPLES / "hello" / "job.yaml"))
    assert sorted(said.splitlines()) == [
        "[Rank-0] hello from rank 0 of 2",
        "[Rank-0] the rank numbers add up to 1",
        "[Rank-1] hello from rank 1 of 2",
    ]


@pytest.mark.req("C-docs")
def test_the_simulated_value_at_risk_is_that_of_theory(tmp_path: Path) -> None:
    said = result(ran(tmp_path, MPIJOB, "run", "-f", str(EXAMPLES / "monte-carlo" / "job.yaml")))
    assert float(said["var99"]) == pytest.approx(float(said["exact"]), rel=0.02)
    assert (said["scenarios"], said["ranks"]) == ("2000000", "4")


@pytest.mark.req("C-docs", "R9")
def test_latency_and_bandwidth_are_told_for_every_size(tmp_path: Path) -> None:
    argv = ("python", "-m", "mpi4py", "pingpong.py", "--largest", "4096", "--rounds", "20")
    said = ran(tmp_path, MPIJOB, "run", "-f", str(EXAMPLES / "latency" / "job.yaml"), "--", *argv)
    rows = [line.split()[1:] for line in said.splitlines()[1:]]
    assert [row[0] for row in rows] == ["1", "4", "16", "64", "256", "1024", "4096"]
    assert all(float(row[1]) > 0 and float(row[2]) > 0 for row in rows)


@pytest.mark.req("C-docs", "Q8")
def test_a_broken_job_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    job = str(EXAMPLES / "checkpoint" / "job.yaml")
    said = ran(tmp_path, MPIJOB, "run", "-f", job, "--env", "PAUSE=0.01")
    assert [line for line in said.splitlines() if "begins after" in line] == [
        "[Rank-0] attempt 1 begins after step 0",
        "[Rank-0] attempt 2 begins after step 10",
    ]
    assert result(said)["resumed_after"] == "10"


def test_a_sweep_finds_the_rate_with_the_smallest_loss(tmp_path: Path) -> None:
    assert ran(tmp_path, sys.executable, str(EXAMPLES / "sweep" / "sweep.py")) == "best rate 0.4 of 3\n"


@pytest.mark.req("C-docs", "NFR-003", "R5")
@pytest.mark.parametrize(("mpi", "ranks"), [("mpich", "4"), ("intel", "2")])
def test_a_c_program_compiled_with_mpicc_runs_with_both_libraries_of_its_abi(
    tmp_path: Path, mpi: str, ranks: str
) -> None:
    shutil.copytree(EXAMPLES / "c-program", tmp_path / "c")
    mpicc = Path(sys.executable).parent / "mpicc"
    subprocess.run([mpicc, "-O2", "pi.c", "-o", "pi", "-lm"], cwd=tmp_path / "c", check=True)
    slots = "2" if mpi == "mpich" else "1"
    argv = ("run", "-f", str(tmp_path / "c" / "job.yaml"), "--mpi", mpi, "--slots", slots)
    said = result(ran(tmp_path, MPIJOB, *argv, MPIJOB_SETTINGS=with_families(tmp_path)))
    assert said == {"pi": "3.1415926536", "ranks": ranks}


@pytest.mark.req("C-docs", "R5", "R9")
def test_the_example_for_intel_mpi_is_joined_by_intel_mpi(tmp_path: Path) -> None:
    job = str(EXAMPLES / "intel-mpi" / "job.yaml")
    said = result(ran(tmp_path, MPIJOB, "run", "-f", job, MPIJOB_SETTINGS=with_families(tmp_path)))
    assert "Intel(R) MPI" in said["library"]
    assert said["sum"] == "3"


def test_every_example_is_in_the_list_of_examples() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    here = [path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "__pycache__")]
    assert [name for name in here if f"({name}" not in listed] == []


def test_each_step_from_one_process_to_many_marks_what_is_new_in_it() -> None:
    """The guide's own test runs the steps and compares their results (`tests/docs/test_pages.py`)."""
    for step in ("2", "3", "4"):
        assert "# new" in (EXAMPLES / "one-to-many" / f"step{step}.py").read_text(encoding="utf-8")
