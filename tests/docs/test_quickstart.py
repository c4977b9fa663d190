"""The quickstart, executed word for word in an empty directory with an empty home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests import pages
from tests.docs.blocks import Command, File, Reader, Script, matches, steps
from tests.docs.readers import a_reader

ROOT = Path(__file__).resolve().parents[2]
PAGE = pages.read("first-job")


@pytest.mark.engine
@pytest.mark.req("C-docs", "AC9", "SC-001", "SC-011", "FR-UX-004", "B-9")
def test_the_quickstart_works_word_for_word(tmp_path: Path) -> None:
    wrong = a_reader(tmp_path).follow(PAGE)
    assert wrong == [], "\n".join(wrong)


@pytest.mark.req("SC-001")
def test_the_quickstart_first_python_job_has_at_most_ten_lines() -> None:
    script = next(step for step in steps(PAGE) if isinstance(step, File) and step.name == "first.py")
    assert len(script.text.splitlines()) <= 10


def test_every_file_of_the_quickstart_is_used_by_a_later_command() -> None:
    todo = list(steps(PAGE))
    for at, step in enumerate(todo):
        if isinstance(step, File):
            later = " ".join(
                after.line if isinstance(after, Command) else after.text for after in todo[at + 1 :]
            )
            assert step.name in later


def test_a_page_is_read_into_files_commands_and_scripts() -> None:
    page = (
        "```yaml\n# a.yaml\nx: 1\n```\ntext\n```console\n$ one\nsays …\n$ two\n```\n```python\nprint()\n```\n"
    )
    assert list(steps(page)) == [
        File("a.yaml", "# a.yaml\nx: 1\n"),
        Command("one", ("says …",)),
        Command("two"),
        Script("print()\n"),
    ]


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        (("mpijob …",), "mpijob 1.2\n", True),
        (("mpijob …",), "other 1.2\n", False),
        (("mpijob …",), "mpijob 1.2\nmore\n", False),
        (("…", "last"), "one\ntwo\nlast\n", True),
        (("…", "last"), "last\n", True),
        (("…", "last"), "last\nmore\n", False),
        (("a.b",), "axb\n", False),
        (("…", "b", "…"), "a\nc\n", False),
        (("job: …",), "submitting job …\njob: Pending\n", True),
        (("job: …",), "job …\n", False),
        ((), "anything\n", True),
    ],
)
def test_an_expected_output_matches_as_a_whole(expected: tuple[str, ...], output: str, same: bool) -> None:
    assert matches(expected, output) is same


def test_a_command_that_fails_is_told_with_its_output(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {"PATH": os.environ["PATH"]})
    wrong = reader.follow("```console\n$ echo no; false\n$ true\n```\n")
    assert wrong == ["$ echo no; false\nended with status 1:\nno\n"]


def test_a_status_that_the_page_asks_for_may_be_a_failure(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {"PATH": os.environ["PATH"]})
    assert reader.follow("```console\n$ exit 3\n$ echo $?\n3\n```\n") == []
    assert reader.follow("```console\n$ exit 3\n$ echo $?\n4\n```\n") != []


def test_a_script_that_raises_is_told(tmp_path: Path) -> None:
    wrong = Reader(tmp_path, {"PATH": os.environ["PATH"]}).follow("```python\nraise ValueError('no')\n```\n")
    assert "ValueError: no" in wrong[0]
