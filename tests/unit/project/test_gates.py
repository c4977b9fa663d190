"""The gates: coverage of at least 80 % in Python and of the page, one try in `make test`, and each gate can close."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LEAST = 80


def recipe(target: str) -> str:
    """Return the commands of a target of the Makefile."""
    found = re.search(
        rf"^{target}:.*##.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None
    return found[1]


def rehearsed(target: str) -> str:
    """Return all that make would do for a target on a fresh machine."""
    words = ("make", "--dry-run", "--always-make", target)
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_after_make_ui_the_page_has_what_it_needs() -> None:
    done = rehearsed("ui")
    server, page = done.index("pip install --quiet --editable '.[ui]'"), done.index("npm run --silent build")
    assert done.index("-m venv") < server < page


def test_make_run_says_what_it_does_before_what_takes_long() -> None:
    assert rehearsed("run").index("about half a minute") < rehearsed("run").index("-m venv")


@pytest.mark.thorough
def test_a_failure_in_make_test_ends_it_without_a_second_try_for_all() -> None:
    assert "pytest" in recipe("test")
    assert "--reruns" not in rehearsed("test")
    assert "--reruns 1" in rehearsed("test-cluster")


@pytest.mark.req("E-coverage")
def test_fewer_lines_and_branches_of_python_than_the_gate_wants_end_make_coverage() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["coverage"]
    assert project["report"]["fail_under"] >= LEAST
    assert project["run"]["branch"]
    assert project["run"]["source"] == ["mpijob"]
    assert "omit" not in project["run"] | project["report"]
    assert "\t$(BIN)/coverage report\n" in recipe("coverage")


def test_what_generated_examples_make_test_leaves_out_make_test_thorough_tries() -> None:
    assert "HYPOTHESIS_PROFILE ?= quick" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "HYPOTHESIS_PROFILE:-same" in recipe("test-thorough")
    assert '-m "property and not alone"' in recipe("test-thorough")


@pytest.mark.thorough
@pytest.mark.req("E-coverage")
def test_the_gate_of_python_closes(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text("import sys\nif len(sys.argv) > 9:\n    a = 1\n    b = 2\n    c = 3\n")
    (tmp_path / "pyproject.toml").write_text(f"[tool.coverage.report]\nfail_under = {LEAST}\n")
    coverage = [sys.executable, "-m", "coverage"]
    environ = {"PATH": "/usr/bin:/bin"}  # nothing of a run that is counted itself
    subprocess.run([*coverage, "run", "half.py"], cwd=tmp_path, check=True, env=environ)
    told = subprocess.run([*coverage, "report"], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert told.returncode == 2
    assert f"fail-under={LEAST}" in told.stdout


@pytest.mark.req("E-coverage")
def test_fewer_lines_of_the_page_than_the_gate_wants_end_make_coverage() -> None:
    commands = recipe("coverage")
    gate = re.search(r"node coverage\.mjs \$\(MPIJOB_PAGE_COVERAGE\) (\d+)\n", commands)
    assert gate is not None
    assert int(gate[1]) >= LEAST
    assert commands.index("rm -rf $(MPIJOB_PAGE_COVERAGE)") < commands.index("pytest")
    program = (ROOT / "frontend" / "coverage.mjs").read_text(encoding="utf-8")
    assert "summary.lines.pct < Number(least)" in program
