"""The requirement table: which tests and which measurements show which requirement, and how they came out.

The ids and their sentences are in docs/requirements.toml; `requirement_marks` (its neighbour, a pytest
plugin) writes what each test showed, `figures` (another) reads what the measurements of bench/ recorded: speed
is never asserted in a test. Here all are laid side by side. Standard library only, so that the table can be
printed before anything is installed.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tools.figures import FILES, Figure, recorded

T = TypeVar("T", "Shown", Figure)
ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "docs" / "requirements.toml"
RESULTS = ROOT / ".make" / "results.json"
ALONE_RESULTS = ROOT / ".make" / "results-alone.json"  # of the second round of `make test`
UI_RESULTS = ROOT / ".make" / "results-ui.json"  # of `make test-ui`
CLUSTER_RESULTS = ROOT / ".make" / "results-cluster.json"  # of `make test-cluster`
FRAMEWORK_RESULTS = ROOT / ".make" / "results-frameworks.json"  # of `make test-frameworks`
GPU_RESULTS = ROOT / "tests/e2e/gpu" / "results.json"  # of `make test-gpu`, kept: few machines have a GPU
RECORDED = ROOT / "tests" / "results.json"  # kept in the tree: what a clone without runs of its own prints
RUNS = (RESULTS, ALONE_RESULTS, CLUSTER_RESULTS, UI_RESULTS, FRAMEWORK_RESULTS)
RESULT_WORDS = ("passed", "failed", "missed", "partly", "open")


@dataclass(frozen=True)
class Requirement:
    """One id with its sentence and the section it stands in; `missing` is what its tests do not show yet."""

    id: str
    section: str
    text: str
    missing: str = ""


@dataclass(frozen=True)
class Shown:
    """One test of the last run: how it ended and which ids it carries."""

    test: str
    outcome: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    requirement: Requirement
    tests: tuple[Shown, ...] = ()
    figures: tuple[Figure, ...] = ()

    @property
    def result(self) -> str:
        """Say `failed` when a test failed, `missed` when a measured goal was not reached, else what was shown.

        A skipped test shows nothing, and neither does a measurement that could not be made: a row with only such
        is `open`. A row that is shown and whose list entry says that something is missing is `partly` shown.
        """
        outcomes = {test.outcome for test in self.tests}
        verdicts = {figure.verdict for figure in self.figures}
        if "failed" in outcomes:
            return "failed"
        if "missed" in verdicts:
            return "missed"
        if "passed" not in outcomes and not verdicts & {"held", "measured"}:
            return "open"
        return "partly" if self.requirement.missing else "passed"


def parse(text: str) -> dict[str, Requirement]:
    """Return the requirements by id; raise ValueError for an id that stands twice or says nothing."""
    found: dict[str, Requirement] = {}
    document = tomllib.loads(text)
    missing = document.get("missing", {})
    for section in document["section"]:
        for id, sentence in section["requirements"].items():
            if id in found:
                raise ValueError(f"{id} stands twice: in '{found[id].section}' and in '{section['title']}'")
            if not isinstance(sentence, str) or not sentence.strip():
                raise ValueError(f"{id} has no sentence")
            where = f"{section['number']}. {section['title']}"
            found[id] = Requirement(id, where, sentence, missing.get(id, ""))
    if strangers := missing.keys() - found.keys():
        raise ValueError(f"missing parts are told of ids that do not exist: {', '.join(sorted(strangers))}")
    return found


def load(path: Path = LIST) -> dict[str, Requirement]:
    """Return the requirements that the project keeps."""
    return parse(path.read_text(encoding="utf-8"))


def results(path: Path = RESULTS) -> tuple[Shown, ...]:
    """Return the tests of the last run; none if there was no run."""
    try:
        written: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    return tuple(Shown(test["test"], test["outcome"], tuple(test["ids"])) for test in written["tests"])


def record(runs: Iterable[Path] = RUNS, path: Path = RECORDED) -> int:
    """Keep the outcomes of the last runs in the tree; return how many tests.

    Cases of one test are one entry: passed only if all of them did. Of a run that was not made again, what was kept
    of it before stays.
    """
    kept: dict[str, Shown] = {}
    for shown in (*results(path), *(shown for run in runs for shown in _cases(results(run)))):
        if shown.ids:
            kept[shown.test] = shown
    gone = {test for test in kept if not _exists(test)}
    tests = [
        {"test": one.test, "outcome": one.outcome, "ids": list(one.ids)}
        for one in sorted(kept.values(), key=lambda one: one.test)
        if one.test not in gone
    ]
    lines = ",\n  ".join(json.dumps(one) for one in tests)
    path.write_text(f'{{"tests": [\n  {lines}\n]}}\n', encoding="utf-8")
    return len(tests)


def _exists(test: str) -> bool:
    """Whether a test is still there; those of the conformance suite are imported by the files that run them."""
    path, _, function = test.partition("::")
    return (ROOT / path).exists() and function.rpartition("::")[2] in _defined()


@functools.cache
def _defined() -> frozenset[str]:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for text in texts for name in re.findall(r"\bdef (test_\w+)\(", text))


def _cases(shown: Iterable[Shown]) -> Iterable[Shown]:
    """Return one entry for each test, with the worst outcome of its cases."""
    worst = ("failed", "skipped", "passed")
    found: dict[str, Shown] = {}
    for one in shown:
        name = one.test.partition("[")[0]
        before = found.get(name)
        outcome = one.outcome if one.outcome in worst else "failed"
        if before is not None:
            outcome = min(outcome, before.outcome, key=worst.index)
        ids = (*before.ids, *one.ids) if before else one.ids
        found[name] = Shown(name, outcome, tuple(dict.fromkeys(ids)))
    return found.values()


def rows(
    requirements: Mapping[str, Requirement], tests: Iterable[Shown], figures: Iterable[Figure] = ()
) -> tuple[Row, ...]:
    """Return one row for each requirement, in the order of the list; results may be older than the list."""
    shown, measured = _by_id(tests), _by_id(figures)
    return tuple(
        Row(entry, tuple(shown.get(id, ())), tuple(measured.get(id, ())))
        for id, entry in requirements.items()
    )


def _by_id(entries: Iterable[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for entry in entries:
        for id in entry.ids:
            found.setdefault(id, []).append(entry)
    return found


def counts(table: Sequence[Row]) -> dict[str, int]:
    """Return how many rows passed, failed, missed their goal, are partly shown and are open."""
    return {result: sum(row.result == result for row in table) for result in RESULT_WORDS}


def render(table: Sequence[Row], *, only: str = "") -> str:
    """Return the table as text, section by section, with the counts at its end."""
    lines: list[str] = []
    section = ""
    for row in (row for row in table if only in ("", row.result)):
        if row.requirement.section != section:
            section = row.requirement.section
            lines += ["", section]
        lines.append(f"  {row.result:<6}  {row.requirement.id:<14}  {row.requirement.text}")
        if row.requirement.missing and row.result in ("partly", "missed"):
            lines.append(f"  {'':<6}  {'':<14}  missing: {row.requirement.missing}")
        lines += [f"  {'':<6}  {'':<14}  · {test.outcome}: {test.test}" for test in row.tests]
        lines += [f"  {'':<6}  {'':<14}  · {figure}" for figure in row.figures]
    number = counts(table)
    parts = ", ".join(f"{number[word]} {word}" for word in RESULT_WORDS)
    total = f"{len(table)} rows: {parts}"
    return "\n".join([*lines, "", total]).lstrip("\n")


def as_json(table: Sequence[Row]) -> str:
    """Return the table for other programs."""
    entries = [
        {
            "id": row.requirement.id,
            "section": row.requirement.section,
            "text": row.requirement.text,
            "result": row.result,
            "missing": row.requirement.missing,
            "tests": [{"test": test.test, "outcome": test.outcome} for test in row.tests],
            "measurements": [
                {"name": one.name, "verdict": one.verdict, "said": str(one)} for one in row.figures
            ],
        }
        for row in table
    ]
    return json.dumps({"counts": counts(table), "rows": entries}, indent=2, ensure_ascii=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; a failed row gives status 1, a missed or an open one does not."""
    parser = argparse.ArgumentParser(
        description="print requirement → tests and measurements → result of the last run"
    )
    parser.add_argument("--results", type=Path, action="append", help="a run's outcomes; may be given again")
    parser.add_argument("--figures", type=Path, action="append", help="recorded measurements; likewise")
    parser.add_argument("--only", choices=["", *RESULT_WORDS], default="")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--record", action="store_true", help="keep the last runs' outcomes in tests/results.json"
    )
    args = parser.parse_args(argv)
    if args.record:
        sys.stdout.write(f"{record()} tests are kept in {RECORDED.relative_to(ROOT)}\n")
        return 0
    written = args.results or [*RUNS, GPU_RESULTS]
    own = [shown for path in written for shown in results(path)]
    names = {shown.test.partition("[")[0] for shown in own}
    before = () if args.results else [one for one in results(RECORDED) if one.test not in names]
    tests = [*own, *before]
    figures = [figure for path in args.figures or FILES.values() for figure in recorded(path)]
    table = rows(load(), tests, figures)
    sys.stdout.write((as_json(table) if args.json else render(table, only=args.only)) + "\n")
    if not any(path.exists() for path in written):
        sys.stderr.write(
            "no run here yet: these are the outcomes kept in the tree; `make test` makes its own\n"
        )
    return 1 if counts(table)["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
