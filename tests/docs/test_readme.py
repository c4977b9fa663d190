"""The README, executed: every command but `make …`, in an empty directory with an empty home."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.docs.blocks import Command, Step, steps
from tests.docs.readers import ROOT, a_reader

PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
_TIMES = re.compile(r"(?<= after )[\d.]+s(?:, (?:waited|ran) [\d.]+s)*")
_SIZES = re.compile(r"[\d.]+(?= ?MiB|Mi\b)")
_WHOSE = re.compile(r"(?<=seen: )(rank \d+; on )\S+")  # and before it when, where the job had begun to run
_LONGEST_LINES = 120


def is_make(step: Step) -> bool:
    return isinstance(step, Command) and step.line.startswith("make ")


def loosened(step: Step) -> Step:
    """Return a command whose output may show other times, sizes and machines than the page's run had."""
    if not isinstance(step, Command):
        return step
    return replace(step, expected=tuple(_loosened(line) for line in step.expected))


def _loosened(line: str) -> str:
    return _WHOSE.sub(r"…\1…", _SIZES.sub("…", _TIMES.sub("…", line)))


@pytest.mark.engine
@pytest.mark.req("C-docs", "AC9", "FR-UX-004")
def test_every_command_of_the_readme_works_as_it_says(tmp_path: Path) -> None:
    todo = [loosened(step) for step in steps(PAGE) if not is_make(step)]
    wrong = a_reader(tmp_path).do(todo)
    assert wrong == [], "\n".join(wrong)
    assert sum(isinstance(step, Command) for step in todo) >= 4


def test_every_make_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|\$ )make ([a-z]+)", PAGE))
    assert {"run", "test", "help"} <= named <= targets


def test_what_the_readme_says_of_make_run_is_what_the_makefile_runs() -> None:
    (run,) = [step for step in steps(PAGE) if isinstance(step, Command) and step.line == "make run"]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nrun:")[2].partition("\n\n")[0]
    assert "mpijob run -f examples/training/job.yaml" in recipe
    assert run.expected[-1].startswith("training Succeeded after ")
    assert any(line.startswith("[Rank-0] scaling: 4 ranks ") for line in run.expected)


def test_times_and_sizes_are_the_only_things_that_may_differ() -> None:
    told = Command(
        "x", ("a Failed after 0.8s, waited 0.1s, 2 ranks", "peak 321.6 MiB", "limit is 256Mi (3.5)")
    )
    assert loosened(told) == Command("x", ("a Failed after …, 2 ranks", "peak … MiB", "limit is …Mi (3.5)"))


def test_the_readme_stays_short() -> None:
    assert len(PAGE.splitlines()) <= _LONGEST_LINES
