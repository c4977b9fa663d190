"""The examples, run as a user runs them: real jobs on the local engine, an empty home each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.readers import ROOT, an_environment

pytestmark = pytest.mark.engine


def ran(folder: Path, *argv: str) -> str:
    """Return what an example says on stdout; it must end with 0."""
    done = subprocess.run(
        argv, cwd=folder, env=an_environment(folder), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.req("FR-SDK-005", "SC-001", "FR-SDK-001")
def test_the_first_job_in_the_sdk_prints_what_every_rank_said(tmp_path: Path) -> None:
    said = ran(tmp_path, sys.executable, str(ROOT / "examples" / "sdk_first_job.py"))
    assert sorted(said.splitlines()) == ["Rank-0 hello", "Rank-1 hello"]


@pytest.mark.req("SC-001")
def test_the_first_job_in_the_sdk_has_at_most_ten_lines() -> None:
    lines = (ROOT / "examples" / "sdk_first_job.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 10


@pytest.mark.req("FR-SDK-005")
def test_a_function_runs_on_every_rank_and_its_result_comes_back(tmp_path: Path) -> None:
    said = ran(tmp_path, sys.executable, str(ROOT / "examples" / "function_job.py"))
    assert 3.1 < float(said.removeprefix("pi is about ")) < 3.2


def test_the_hello_job_greets_from_both_ranks_and_adds_up(tmp_path: Path) -> None:
    mpijob = Path(sys.executable).parent / "mpijob"
    said = ran(tmp_path, str(mpijob), "run", "-f", str(ROOT / "examples" / "hello" / "job.yaml"))
    assert sorted(said.splitlines()) == [
        "[Rank-0] hello from rank 0 of 2",
        "[Rank-0] the rank numbers add up to 1",
        "[Rank-1] hello from rank 1 of 2",
    ]
