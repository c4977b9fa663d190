"""A pytest plugin: `@pytest.mark.req("FR-002")` says which requirement a test shows.

An id that docs/requirements.toml does not hold is an error at collection. With `--results FILE` the
outcome of every test is written there, with its ids, for `tools.requirements` to lay out. Under xdist
the workers' reports reach the main process, which alone writes.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tools import requirements

_PROPERTY = "requirements"
_AGAIN = "rerun"  # it failed and is tried once more
_WORSE = {"passed": 0, "skipped": 1, "failed": 2}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the place where outcomes are written."""
    parser.addoption("--results", metavar="FILE", help="write each test's outcome and requirement ids here")


def pytest_configure(config: pytest.Config) -> None:
    """Collect outcomes in the main process if they are wanted."""
    if config.getoption("--results") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(config.getoption("--results"))), "requirement-recorder")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Give each test its ids; ids that nobody knows make the collection of their file fail."""
    report = yield
    wrong: list[str] = []
    for item in report.result or ():
        if isinstance(item, pytest.Item):
            ids = _ids(item)
            wrong += [
                f"{item.nodeid}: {id!r} is not in docs/requirements.toml" for id in ids if id not in _known()
            ]
            item.user_properties.append((_PROPERTY, ids))
    if wrong:
        report.outcome, report.longrepr, report.result = "failed", "\n".join(wrong), []
    return report


@functools.cache
def _known() -> frozenset[str]:
    return frozenset(requirements.load())


def _ids(item: pytest.Item) -> list[str]:
    marks = list(item.iter_markers("req"))
    if any(not mark.args for mark in marks):
        return ["(a req mark without an id)"]
    return sorted({str(id) for mark in marks for id in mark.args})


def _name(nodeid: str) -> str:
    """Return the name of a test without the group that pytest-xdist puts behind it."""
    name, at, group = nodeid.rpartition("@")
    return name if at and "]" not in group else nodeid


class Recorder:
    """The outcomes of one run: a test's worst phase counts, and an expected failure is no pass."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of one test."""
        name = _name(report.nodeid)
        if report.outcome == _AGAIN:
            self._tests.pop(name, None)  # what counts is the second time
            return
        ids = dict(report.user_properties).get(_PROPERTY, [])
        test = self._tests.setdefault(name, {"test": name, "outcome": "passed", "ids": ids})
        test["outcome"] = max(test["outcome"], report.outcome, key=_WORSE.__getitem__)
        test["seconds"] = round(test.get("seconds", 0.0) + report.duration, 3)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write all outcomes at once: a reader sees the last run or this one, never half of it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        tests = [self._tests[name] for name in sorted(self._tests)]
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"exit": int(exitstatus), "tests": tests}, indent=1), encoding="utf-8")
        os.replace(fresh, self._path)
