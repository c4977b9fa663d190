"""The whole table of all benches, and the page of measured figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import whole
from tools import figures, figures_page, requirements
from tools.figures import Figure

NOW = "2026-11-15T12:00:00Z"


def a_figure(name: str, *, time: str = NOW, **fields: object) -> Figure:
    told: dict[str, object] = {"ours": 0.4, "reference": 1.0, "ratio": 0.4, "unit": "s", "goal": "≤ 1", "holds": True,
                               "cores": 2, "processor": "a small one"}  # fmt: skip
    return Figure(name, time=time, **(told | fields))  # type: ignore[arg-type]


@pytest.mark.req("E-bench")
def test_one_table_joins_all_benches_and_marks_what_was_not_run() -> None:
    areas = {
        "local": [a_figure("pace"), a_figure("old pace", time="2026-11-01T12:00:00Z")],
        "cluster": [a_figure("slow", holds=False), a_figure("gang", missing="no cluster")],
        "page": [],
        "services": [],
    }
    text = whole.joined(areas, {"local": 0, "cluster": 2, "page": 0}, NOW)
    by_name = {line.split("  ")[0]: line for line in text.splitlines()}
    assert by_name["pace"].endswith("now, 2 cores")
    assert by_name["old pace"].endswith("not run now, 2026-11-01, 2 cores")
    assert "missed" in by_name["slow"]
    assert by_name["gang"].endswith("not measured  no cluster")
    assert text.count("nothing is recorded") == 2
    assert text.splitlines()[-3:] == [
        "make bench-cluster ended with 2",
        "not run: make soak",
        "4 lines: 2 measured now, 1 before, 1 not measured; 1 missed",
    ]


@pytest.mark.req("E-bench")
def test_every_bench_is_run_by_its_target_and_one_that_fails_does_not_hold_up_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "make").write_text('#!/bin/sh\necho "made $1"\n[ "$1" != bench-ui ]\n')
    (tmp_path / "make").chmod(0o700)
    monkeypatch.setenv("MAKE", str(tmp_path / "make"))
    assert whole.main([]) == 1
    told = capfd.readouterr().out
    assert [line for line in told.splitlines() if line.startswith("made")] == [
        "made bench", "made bench-ui", "made bench-cluster", "made soak", "made faults"
    ]  # fmt: skip
    assert "make bench-ui ended with 1" in told
    makefile = (requirements.ROOT / "Makefile").read_text()
    assert all(f"\n{target}: " in makefile for target in (*whole.TARGETS.values(), "bench-all"))


def test_the_table_alone_runs_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAKE", "/nonexistent")
    assert whole.main(["--table"]) == 0
    assert all(f"not run: make {target}" in capfd.readouterr().out for target in ["soak"])


def test_the_page_tells_greatest_numbers_misses_and_gaps() -> None:
    small = a_figure("scale: jobs", ours=50.0, unit="jobs", ids=("NFR-006",), note="fake nodes; 80 s")
    large = a_figure(
        "scale: jobs", ours=100.0, unit="jobs", ids=("NFR-006", "C-100"), note="fake nodes; 200 s", cores=16
    )
    areas = {
        "local": [a_figure("slow | late", holds=False), a_figure("wide", missing="too few cores")],
        "cluster": [small, large],
        "services": [a_figure("kept", holds=False, must="≤ 24", must_holds=True)],
    }
    text = figures_page.page(areas)
    assert "| jobs that run at once | 100 | fake nodes; 200 s; 16 cores, 2026-11-15 |" in text
    assert "| workers of one job | not measured yet |" in text
    assert "- slow \\| late: 0.4 s against 1 s, ratio 0.4 (goal ≤ 1); 2 cores, 2026-11-15" in text
    assert "- wide: too few cores" in text
    assert "| held, goal missed |" in text
    assert "| 2 | a small one |" in text


def test_the_page_is_that_of_the_records() -> None:
    areas = {area: figures.recorded(path) for area, path in figures.FILES.items()}
    assert figures_page.PAGE.read_text(encoding="utf-8") == figures_page.page(areas), (
        f"the page is older than the records: {figures_page.COMMAND}"
    )
