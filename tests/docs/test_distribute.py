"""From one process to many: each step of the guide's scripts gives what the guide says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.readers import ROOT, an_environment

pytestmark = pytest.mark.engine
STEPS = ROOT / "examples" / "one-to-many"


def weights(said: str) -> set[str]:
    return set(re.findall(r"weights=(\[.*\])", said))


def ran(folder: Path, step: str, workers: int) -> str:
    mpijob = str(Path(sys.executable).parent / "mpijob")
    job = ("run", f"step{step}", "--workers", str(workers), "--cpu", "500m", "--code", str(STEPS))
    argv = (mpijob, *job, "--", "python", "-m", "mpi4py", f"step{step}.py")
    environ = an_environment(folder)
    done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.req("C-docs")
def test_ranks_that_average_gradients_find_what_one_process_finds(tmp_path: Path) -> None:
    alone = subprocess.run([sys.executable, STEPS / "step1.py"], capture_output=True, text=True, check=True)
    assert weights(ran(tmp_path, "3", 4)) == weights(alone.stdout)


@pytest.mark.req("C-docs")
def test_ranks_that_do_not_average_each_find_something_else(tmp_path: Path) -> None:
    assert len(weights(ran(tmp_path, "2", 4))) == 4


@pytest.mark.req("C-docs")
def test_a_larger_batch_with_a_larger_rate_needs_fewer_steps_for_the_same_loss(tmp_path: Path) -> None:
    said = ran(tmp_path, "4", 4)
    assert "steps=64 loss=0.00988" in said
    assert '"rate": 0.08' in said


def test_a_step_marks_what_is_new_in_it() -> None:
    for step in ("2", "3", "4"):
        assert "# new" in (STEPS / f"step{step}.py").read_text(encoding="utf-8")
