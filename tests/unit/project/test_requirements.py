"""The requirement list, the marks on tests and the table that is made of both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import requirements
from tools.figures import Figure
from tools.requirements import Requirement, Row, Shown

ROOT = requirements.ROOT
IDS_IN_SECTION = {1: 52, 2: 23, 3: 36, 4: 24, 5: 43, 6: 23, 7: 23, 8: 25, 9: 15, 10: 2}


def a_row(*outcomes: str) -> Row:
    tests = tuple(Shown(f"test_{number}", outcome, ("FR-1",)) for number, outcome in enumerate(outcomes))
    return Row(Requirement("FR-1", "1. First", "It works."), tests)


def a_figure(holds: bool | None, must_holds: bool | None = None, **more: object) -> Figure:
    told = {"ours": 0.9, "reference": 1.8, "ratio": 0.5, "unit": "s", "goal": "≤ 0.3", "cores": 16}
    told |= {"time": "2026-11-15T10:00:00Z", "ids": ("FR-1",), "must": "" if must_holds is None else "≤ 0.6"}
    return Figure("pace", holds=holds, must_holds=must_holds, **(told | more))  # type: ignore[arg-type]


def measured(*figures: Figure, outcomes: tuple[str, ...] = (), missing: str = "") -> Row:
    return Row(Requirement("FR-1", "1. First", "It works.", missing), a_row(*outcomes).tests, figures)


def run_pytest(folder: Path, source: str, *flags: str) -> tuple[int, str, list[dict[str, object]]]:
    """Run a test file of its own under the plugin; return status, output and what was recorded."""
    (folder / "test_sample.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    req\n")
    written = folder / "results.json"
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tools.requirement_marks",
        "--results",
        str(written),
        *flags,
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)
    tests = json.loads(written.read_text())["tests"] if written.exists() else []
    return done.returncode, done.stdout + done.stderr, tests


def test_the_list_holds_every_id_once() -> None:
    found = requirements.load()
    sections = [int(entry.section.split(".")[0]) for entry in found.values()]
    assert {number: sections.count(number) for number in IDS_IN_SECTION} == IDS_IN_SECTION
    assert len(found) == 266


def test_every_requirement_is_one_sentence() -> None:
    for entry in requirements.load().values():
        assert (
            entry.text[0].isupper()
            or entry.text.startswith("`")
            or entry.id in ("D-sdk", "E-sdk", "D-init", "Q18")
        )
        assert entry.text.rstrip("'\"").endswith(".")
        assert "\n" not in entry.text


def test_an_id_that_stands_in_two_sections_is_refused() -> None:
    section = '[[section]]\nnumber = {}\ntitle = "S{}"\n[section.requirements]\nFR-1 = "It works."\n'
    with pytest.raises(ValueError, match=r"FR-1 stands twice: in '1\. S1' and in 'S2'"):
        requirements.parse(section.format(1, 1) + section.format(2, 2))


def test_an_id_without_a_sentence_is_refused() -> None:
    with pytest.raises(ValueError, match="FR-1 has no sentence"):
        requirements.parse('[[section]]\nnumber = 1\ntitle = "S"\n[section.requirements]\nFR-1 = " "\n')


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        ((), "open"),
        (("skipped",), "open"),
        (("passed",), "passed"),
        (("passed", "skipped"), "passed"),
        (("passed", "failed"), "failed"),
    ],
)
def test_a_row_is_passed_only_by_tests_that_ran(outcomes: tuple[str, ...], result: str) -> None:
    assert a_row(*outcomes).result == result


def test_the_table_counts_open_rows_and_names_the_tests() -> None:
    table = (a_row("passed"), a_row("failed"), a_row())
    text = requirements.render(table)
    assert text.endswith("3 rows: 1 passed, 1 failed, 0 missed, 0 partly, 1 open")
    assert "· failed: test_0" in text


def test_the_table_is_also_written_for_programs() -> None:
    written = json.loads(requirements.as_json((a_row("passed"),)))
    assert written["counts"] == {"passed": 1, "failed": 0, "missed": 0, "partly": 0, "open": 0}
    assert written["rows"][0]["tests"] == [{"test": "test_0", "outcome": "passed"}]


def test_without_a_run_every_row_is_open_and_the_reader_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = str(tmp_path / "none.json")
    assert requirements.main(["--results", none, "--figures", none, "--only", "open"]) == 0
    told = capsys.readouterr()
    assert told.out.rstrip().endswith("266 rows: 0 passed, 0 failed, 0 missed, 0 partly, 266 open")
    assert "make test" in told.err


def test_results_that_name_an_id_no_longer_listed_are_left_aside() -> None:
    entry = Requirement("FR-1", "1. First", "It works.")
    table = requirements.rows({"FR-1": entry}, [Shown("test_old", "passed", ("FR-0", "FR-1"))])
    assert [row.requirement.id for row in table] == ["FR-1"]
    assert table[0].result == "passed"


SAMPLE = """
import pytest

@pytest.mark.req("FR-002", "R1")
@pytest.mark.xdist_group("together")
def test_good(): assert True

@pytest.mark.req("FR-003")
def test_bad(): assert False

@pytest.mark.req("FR-004")
@pytest.mark.skip(reason="not today")
def test_skipped(): assert True

@pytest.mark.req("FR-005")
@pytest.mark.xfail
def test_expected_to_fail(): assert False

@pytest.fixture
def broken():
    yield
    raise OSError("teardown")

@pytest.mark.req("FR-007")
def test_with_a_broken_teardown(broken): assert True
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "flags",
    [(), ("-n", "2"), ("-n", "2", "--dist", "loadgroup")],
    ids=["one process", "two processes", "groups"],
)
def test_each_outcome_is_recorded_with_its_ids(tmp_path: Path, flags: tuple[str, ...]) -> None:
    status, output, tests = run_pytest(tmp_path, SAMPLE, *flags)
    assert status == 1, output
    assert [(test["test"], test["outcome"], test["ids"]) for test in tests] == [
        ("test_sample.py::test_bad", "failed", ["FR-003"]),
        ("test_sample.py::test_expected_to_fail", "skipped", ["FR-005"]),
        ("test_sample.py::test_good", "passed", ["FR-002", "R1"]),
        ("test_sample.py::test_skipped", "skipped", ["FR-004"]),
        ("test_sample.py::test_with_a_broken_teardown", "failed", ["FR-007"]),
    ]


@pytest.mark.thorough
def test_a_quarantined_test_is_run_once_more_and_counts_as_it_ended(tmp_path: Path) -> None:
    source = """
import pathlib

def test_wavers():
    before = pathlib.Path(__file__).with_name("before")
    assert before.exists() or before.touch()

def test_fails(): assert False
"""
    (tmp_path / "tests").mkdir()
    listed = '"test_sample.py::test_wavers" = "it fails at first"'
    (tmp_path / "tests" / "quarantine.toml").write_text(f"[tests]\n{listed}\n")
    _, output, tests = run_pytest(tmp_path, source, "-p", "tools.second_tries")
    assert "1 rerun" in output
    assert "first try of test_sample.py::test_wavers" in output
    assert "test_sample.py::test_wavers: 1 tried again; it fails at first" in output
    assert [(test["test"], test["outcome"]) for test in tests] == [
        ("test_sample.py::test_fails", "failed"),
        ("test_sample.py::test_wavers", "passed"),
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("flags", [(), ("-n", "1")], ids=["one process", "a worker process"])
@pytest.mark.parametrize(("mark", "told"), [('"FR-999"', "'FR-999'"), ("", "a req mark without an id")])
def test_an_unknown_id_stops_the_run_at_collection(
    tmp_path: Path, flags: tuple[str, ...], mark: str, told: str
) -> None:
    source = f"import pytest\n@pytest.mark.req({mark})\ndef test_it(): assert True\n"
    status, output, tests = run_pytest(tmp_path, source, *flags)
    assert status != 0
    assert tests == []
    assert "is not in docs/requirements.toml" in output
    assert told in output


def test_a_row_with_something_missing_is_never_told_as_passed() -> None:
    row = a_row("passed")
    partly = Row(Requirement("FR-1", "1. First", "It works.", "the page"), row.tests)
    assert (row.result, partly.result) == ("passed", "partly")
    assert "missing: the page" in requirements.render([partly])
    assert requirements.counts([row, partly]) == {
        "passed": 1,
        "failed": 0,
        "missed": 0,
        "partly": 1,
        "open": 0,
    }


def test_a_missing_part_of_an_unknown_id_is_refused() -> None:
    text = '[missing]\nX = "y"\n[[section]]\nnumber = 1\ntitle = "t"\n[section.requirements]\nA = "B."\n'
    with pytest.raises(ValueError, match="X"):
        requirements.parse(text)


@pytest.mark.parametrize(
    ("row", "result"),
    [
        (measured(a_figure(True)), "passed"),
        (measured(a_figure(False)), "missed"),
        (measured(a_figure(False, True)), "passed"),  # what is asked for holds; the goal is ours
        (measured(a_figure(True, False)), "missed"),
        (measured(a_figure(True), a_figure(False)), "missed"),
        (measured(a_figure(None)), "passed"),  # a figure is told, and nothing bounds it
        (measured(a_figure(None, missing="no cluster")), "open"),
        (measured(a_figure(None, missing="no cluster"), outcomes=("passed",)), "passed"),
        (measured(a_figure(True), missing="eight machines"), "partly"),
        (measured(a_figure(False), missing="eight machines"), "missed"),
        (measured(a_figure(False), outcomes=("passed",)), "missed"),
        (measured(a_figure(False), outcomes=("failed",)), "failed"),
    ],
)
def test_a_measured_row_says_whether_what_is_asked_for_was_reached(row: Row, result: str) -> None:
    assert row.result == result


def test_a_measured_row_prints_figure_goal_verdict_machine_and_date() -> None:
    text = requirements.render([measured(a_figure(False, True))])
    told = "pace: 0.9 s against 1.8 s, ratio 0.5 (asked ≤ 0.6, goal ≤ 0.3); 16 cores, 2026-11-15"
    assert f"· held: {told}" in text
    missed = requirements.render([measured(a_figure(False), missing="eight machines")])
    assert "missed  FR-1" in missed
    assert "missing: eight machines" in missed
    assert requirements.counts([measured(a_figure(False))])["missed"] == 1


def test_a_goal_that_was_missed_is_told_and_is_no_failure_of_the_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = {"name": "pace", "ours": 2, "reference": 1, "ratio": 2, "unit": "s", "goal": "≤ 1", "holds": False,
            "must": None, "must_holds": None, "note": "", "rows": ["SC-002"], "part": "p", "quick": False,
            "time": "2026-11-15T10:00:00Z", "machine": {"cores": 2}}  # fmt: skip
    (tmp_path / "figures.json").write_text(json.dumps({"lines": [line]}))
    argv = ["--results", str(tmp_path / "none"), "--figures", str(tmp_path / "figures.json"), "--json"]
    assert requirements.main(argv) == 0
    written = json.loads(capsys.readouterr().out)
    (row,) = (row for row in written["rows"] if row["id"] == "SC-002")
    assert (row["result"], written["counts"]["missed"]) == ("missed", 1)
    assert row["measurements"][0]["verdict"] == "missed"


def a_run(path: Path, **outcomes: str) -> Path:
    tests = [{"test": name, "outcome": outcome, "ids": ["FR-002"]} for name, outcome in outcomes.items()]
    path.write_text(json.dumps({"tests": tests}))
    return path


@pytest.mark.thorough
def test_kept_outcomes_are_the_worst_of_a_test_s_cases_and_those_of_runs_not_made_again(
    tmp_path: Path,
) -> None:
    one, other = (
        f"tests/unit/project/test_requirements.py::{test.__name__}"
        for test in (test_every_requirement_is_one_sentence, test_the_list_holds_every_id_once)
    )
    kept = tmp_path / "kept.json"
    first = a_run(
        tmp_path / "1",
        **{f"{one}[x]": "passed", f"{one}[y]": "failed", other: "passed", f"{other}_and_more": "passed"},
    )
    assert requirements.record([first], kept) == 2, "what is no longer a test is not kept"
    assert [(test.test, test.outcome) for test in requirements.results(kept)] == [
        (one, "failed"),
        (other, "passed"),
    ]
    again = a_run(tmp_path / "2", **{f"{one}[x]": "passed", "tests/gone.py::test_c": "passed"})
    assert requirements.record([again, tmp_path / "none"], kept) == 2
    assert {test.outcome for test in requirements.results(kept)} == {"passed"}


def test_a_clone_without_a_run_prints_what_the_tree_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(requirements, "RUNS", (tmp_path / "none",))
    monkeypatch.setattr(requirements, "RECORDED", a_run(tmp_path / "kept", **{"tests/x.py::a": "passed"}))
    assert requirements.main(["--json"]) == 0
    said = capsys.readouterr()
    (row,) = (row for row in json.loads(said.out)["rows"] if row["id"] == "FR-002")
    assert {"test": "tests/x.py::a", "outcome": "passed"} in row["tests"]
