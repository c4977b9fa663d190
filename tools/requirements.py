"""The requirement table: which tests show which requirement, and how they ended last time.

The ids and their sentences are in docs/requirements.toml; `requirement_marks` (its neighbour, a pytest
plugin) writes what each test showed. Here both are laid side by side. Standard library only, so that
the table can be printed before anything is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "docs" / "requirements.toml"
RESULTS = ROOT / ".make" / "results.json"
UI_RESULTS = ROOT / ".make" / "results-ui.json"  # of `make test-ui`
CLUSTER_RESULTS = ROOT / ".make" / "results-cluster.json"  # of `make test-cluster`
FRAMEWORK_RESULTS = ROOT / ".make" / "results-frameworks.json"  # of `make test-frameworks`
GPU_RESULTS = ROOT / "tests_gpu" / "results.json"  # of `make test-gpu`, kept: few machines have a GPU
RESULT_WORDS = ("passed", "failed", "partly", "open")


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
    tests: tuple[Shown, ...]

    @property
    def result(self) -> str:
        """Say `passed` when every test passed, `failed` when one failed, else `open`.

        A skipped test shows nothing, so a row with only skipped tests is open. A row whose tests pass and
        whose list entry says that something is missing is `partly` shown.
        """
        outcomes = {test.outcome for test in self.tests}
        if "failed" in outcomes:
            return "failed"
        if "passed" not in outcomes:
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


def rows(requirements: Mapping[str, Requirement], tests: Iterable[Shown]) -> tuple[Row, ...]:
    """Return one row for each requirement, in the order of the list."""
    by_id: dict[str, list[Shown]] = {id: [] for id in requirements}
    for test in tests:
        for id in test.ids:
            if id in by_id:  # results may be older than the list
                by_id[id].append(test)
    return tuple(Row(requirements[id], tuple(shown)) for id, shown in by_id.items())


def counts(table: Sequence[Row]) -> dict[str, int]:
    """Return how many rows passed, failed, are partly shown and are open."""
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
        if row.result == "partly":
            lines.append(f"  {'':<6}  {'':<14}  missing: {row.requirement.missing}")
        lines += [f"  {'':<6}  {'':<14}  · {test.outcome}: {test.test}" for test in row.tests]
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
        }
        for row in table
    ]
    return json.dumps({"counts": counts(table), "rows": entries}, indent=2, ensure_ascii=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; a failed row gives status 1, an open one does not."""
    parser = argparse.ArgumentParser(description="print requirement → tests → result of the last run")
    parser.add_argument("--results", type=Path, action="append", help="a run's outcomes; may be given again")
    parser.add_argument("--only", choices=["", *RESULT_WORDS], default="")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    written = args.results or [RESULTS, CLUSTER_RESULTS, UI_RESULTS, FRAMEWORK_RESULTS, GPU_RESULTS]
    table = rows(load(), [shown for path in written for shown in results(path)])
    sys.stdout.write((as_json(table) if args.json else render(table, only=args.only)) + "\n")
    if not any(path.exists() for path in written):
        sys.stderr.write("no results of a run yet: `make test` writes them\n")
    return 1 if counts(table)["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
