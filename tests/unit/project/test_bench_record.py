"""What the measurements leave behind: lines with their rows, merged over runs and machines."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from bench import efficiency, record, speedup
from bench.efficiency import Rates
from bench.line import Line, at_least, at_most
from bench.places import Options
from bench.record import Entry, Run
from bench.soak.__main__ import line_of
from bench.speedup import Times
from tools import figures, requirements

SMALL: Mapping[str, object] = {"cores": 2, "processor": "small"}
LARGE: Mapping[str, object] = {"cores": 16, "processor": "large"}


def a_line(name: str = "pace", ours: float = 1.0, **fields: object) -> Line:
    return Line(name, "s", ours, 2.0, ours / 2.0, at_most(1.0), **fields)  # type: ignore[arg-type]


def entries(
    *lines: Line, part: str = "part", quick: bool = False, on: Mapping[str, object] = SMALL
) -> list[Entry]:
    run = Run(part, "2026-11-15T10:00:00Z", quick, on)
    return [run.entry(line) for line in lines]


def told(found: list[Entry]) -> list[tuple[str, object, object]]:
    return [(one["name"], one["machine"]["cores"], one.get("missing", one.get("ours"))) for one in found]


def test_a_line_is_kept_with_its_rows_its_time_and_its_machine(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    run = record.this_run("part", quick=False, load=1000.0)
    record.store(path, run, [a_line(rows=("SC-002",))])
    (kept,) = record.load(path)
    assert (kept["rows"], kept["part"], kept["time"]) == (["SC-002"], "part", run.time)
    assert kept["machine"]["cores"] == record.cores() >= 1
    (figure,) = figures.recorded(path)
    assert (figure.ids, figure.verdict, figure.ratio) == (("SC-002",), "held", 0.5)
    assert (figure.cores, figure.day) == (record.cores(), run.time[:10])
    assert figure.machine.endswith("with load 1000")


def test_a_second_run_replaces_its_own_lines_and_leaves_those_of_other_parts_and_machines() -> None:
    before = [*entries(a_line("a"), a_line("b")), *entries(a_line("other"), part="else"),
              *entries(a_line("a", 9.0), on=LARGE)]  # fmt: skip
    after = record.merged(before, entries(a_line("a", 3.0), a_line("b", 4.0)))
    assert told(after) == [("a", 2, 3.0), ("b", 2, 4.0), ("other", 2, 1.0), ("a", 16, 9.0)]


def test_what_a_part_no_longer_measures_is_dropped_unless_the_part_broke() -> None:
    before = entries(a_line("a"), a_line("gone"))
    assert told(record.merged(before, entries(a_line("a", 3.0)))) == [("a", 2, 3.0)]
    broken = entries(a_line("a", 3.0), Line("part", missing="no cluster"))
    assert told(record.merged(before, broken)) == [("a", 2, 3.0), ("gone", 2, 1.0)]
    elsewhere = record.merged(before, entries(a_line("a", 3.0), on=LARGE))
    assert told(elsewhere) == [("a", 2, 1.0), ("gone", 2, 1.0), ("a", 16, 3.0)]


def test_a_quick_run_never_replaces_a_full_one() -> None:
    full = entries(a_line("a"), a_line("only in full"))
    quick = entries(a_line("a", 3.0), a_line("b", 3.0), quick=True)
    after = record.merged(full, quick)
    assert told(after) == [("a", 2, 1.0), ("only in full", 2, 1.0), ("b", 2, 3.0)]
    assert told(record.merged(quick, full)) == [("a", 2, 1.0), ("only in full", 2, 1.0)]


def test_a_line_without_figures_never_hides_one_with_them_on_whatever_machine() -> None:
    unmeasured = entries(Line("a", missing="too few cores"))
    large = entries(a_line("a"), on=LARGE)
    assert told(record.merged(large, unmeasured)) == [("a", 16, 1.0)]
    assert told(record.merged(unmeasured, large)) == [("a", 16, 1.0)]
    again = entries(Line("a", missing="fewer still"), on={"cores": 1, "processor": "tiny"})
    assert told(record.merged(unmeasured, again)) == [("a", 1, "fewer still")]


def test_a_part_that_broke_is_told_until_it_runs() -> None:
    broken = entries(Line("part", missing="no cluster"))
    assert told(record.merged([], broken)) == [("part", 2, "no cluster")]
    assert told(record.merged(broken, entries(a_line("a"), on=LARGE))) == [("a", 16, 1.0)]
    assert told(record.merged(entries(a_line("a"), on=LARGE), broken)) == [("a", 16, 1.0)]


SAMPLE = """
import pathlib, sys
from bench import command
from bench.line import Line, Unmeasured
def good(options):
    yield Line("pace", "s", 1.0, rows=("SC-002",))
    yield Line("wide", missing="too few cores")
def bad(options):
    yield Line("first", "s", 2.0)
    raise Unmeasured("no cluster")
sys.exit(command.main("sample", {"good": good, "bad": bad}, pathlib.Path(sys.argv.pop(1))))
"""


def run_bench(path: Path, only: str) -> int:
    argv = [sys.executable, "-c", SAMPLE, str(path), "--only", only]
    return subprocess.run(
        argv, cwd=requirements.ROOT, capture_output=True, timeout=60, check=False
    ).returncode


@pytest.mark.thorough
def test_runs_of_single_parts_gather_in_one_file_and_only_a_part_that_broke_is_an_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "results.json"
    assert (run_bench(path, "good"), run_bench(path, "bad")) == (0, 1)
    kept = [(one["part"], one["name"], one.get("missing", "")) for one in record.load(path)]
    assert kept == [
        ("good", "pace", ""),
        ("good", "wide", "too few cores"),
        ("bad", "first", ""),
        ("bad", "bad", "no cluster"),
    ]


@pytest.mark.parametrize(("text", "most"), [("max 100000", 10**6), ("100000 100000", 1), ("50000 100000", 1)])
def test_the_quota_of_a_group_bounds_the_cores(tmp_path: Path, text: str, most: int) -> None:
    allowed = record.cores(tmp_path / "none")
    assert allowed == len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text(text)
    assert record.cores(tmp_path / "cpu.max") == min(allowed, most)


@pytest.mark.parametrize(
    ("cores", "counts"),
    [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4)), (8, (1, 2, 4, 8)), (16, (1, 2, 4, 8, 16, 64))],
)
def test_the_cores_say_how_many_workers_are_tried(cores: int, counts: tuple[int, ...]) -> None:
    assert speedup.counts(cores) == counts


def test_speeds_are_judged_by_what_is_asked_beside_what_the_machine_gives_and_their_spread() -> None:
    rates = Rates(
        one=(100.0, 99.0, 101.0), many=(695.0, 700.0, 690.0), apart=(760.0, 760.0), bare=(700.0, 690.0)
    )
    efficient, compared = efficiency.lines(8, rates)
    assert (efficient.rows, efficient.holds, efficient.must_holds) == (("SC-013",), False, True)
    assert efficient.ratio == pytest.approx(0.86875)
    assert efficient.note == (
        "3 runs, 690 to 700 rows/s of 8 workers, 3 runs, 99 to 101 rows/s of one; 0.95 is what the same programs "
        "reach here without talking to each other"
    )
    assert (compared.rows, compared.must_holds) == (("C-baremetal",), True)
    shares = {line.rows[0]: (line.ratio, line.holds) for line in efficiency.lines(4, rates)}
    assert {row: holds for row, (_, holds) in shares.items()} == {"SC-002": True, "NFR-001": True} | {
        "C-baremetal": True
    }
    assert shares["SC-002"][0] == pytest.approx(100 / 695)
    assert shares["NFR-001"][0] == pytest.approx(6.95)


def test_what_a_machine_has_too_few_cores_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "cores", lambda: 2)
    found = [*efficiency.measure(8, Options())]
    assert [(line.rows, line.missing) for line in found] == [
        (("SC-013",), "it wants 8 cores, and this machine has 2")
    ]


def test_the_comparison_with_bare_mpiexec_names_its_conditions() -> None:
    lines = [*speedup.against_bare({1: Times(1.0, 0.9), 64: Times(1.0, 0.7)}, "mpich 5, two cores", 16)]
    assert [(line.rows, line.must_holds) for line in lines] == [
        (("C-baremetal",), True),
        (("C-baremetal",), False),
    ]
    assert all("mpich 5, two cores" in line.note for line in lines)
    (_, last) = speedup.against_bare({1: Times(1.0, 0.9)}, "", 2)
    assert (last.rows, last.missing) == (("C-baremetal",), "it wants 16 cores, and this machine has 2")


def test_only_a_whole_day_shows_how_a_service_grows_in_a_day() -> None:
    growing = [30.0 + 0.5 * hour for hour in range(24)]
    day = line_of("controller", growing, 960)
    assert day.ratio == pytest.approx(12.0)
    assert (day.holds, day.must_holds) == (False, True)
    assert (day.rows, line_of("controller", growing[:5], 200).rows) == (("D-soak",), ())
    assert line_of("controller", [30.0 + 1.5 * hour for hour in range(24)], 960).must_holds is False


def test_bounds_are_written_as_people_read_them() -> None:
    line = Line("a", ratio=0.9, goal=at_least(0.97), must=at_least(0.85), rows=("D-overhead",)).value()
    assert (line["goal"], line["must"], line["holds"], line["must_holds"]) == (
        "≥ 0.97",
        "≥ 0.85",
        False,
        True,
    )


def rows_in_source() -> Iterator[str]:
    """Yield every word that the sources of the benches give as an id of a row."""
    for path in (requirements.ROOT / "bench").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "rows":
                yield from (
                    one.value
                    for one in ast.walk(node.value)
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                )


@pytest.mark.thorough
def test_every_row_that_a_measurement_names_is_in_the_list() -> None:
    known = requirements.load().keys()
    named = {*rows_in_source(), *(wish.row for wish in efficiency.WISHES)}
    assert named
    assert named <= known
    recorded = {
        id for path in figures.FILES.values() for figure in figures.recorded(path) for id in figure.ids
    }
    assert recorded <= known
