"""A pytest plugin: tests that may fail once, by name and with a reason, and the first try of each that did.

tests/quarantine.toml holds the names. Every other test fails at its first failure, unless the run was started with
`--reruns`, as the cluster tests are. What passed at its second try had a cause at its first: it is shown.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

_LONGEST_SHOWN = 6000


def quarantined(root: Path) -> Mapping[str, str]:
    """Return the tests of a tree that may fail once, each with its reason."""
    text = (root / "tests" / "quarantine.toml").read_text(encoding="utf-8")
    found: Mapping[str, str] = tomllib.loads(text)["tests"]
    return found


@pytest.hookimpl(tryfirst=True)  # xdist puts its groups behind the names in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the quarantined tests a second try."""
    names = quarantined(config.rootpath)
    for item in items:
        if _name(item.nodeid) in names:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the end of each first try, then how often each quarantined test needed its second."""
    reruns = terminalreporter.stats.get("rerun", [])
    for report in reruns:
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext[-_LONGEST_SHOWN:])
    names = quarantined(config.rootpath)
    first = [_name(report.nodeid) for report in reruns]
    ran = {
        _name(report.nodeid)
        for outcome in ("passed", "failed", "rerun")
        for report in terminalreporter.stats.get(outcome, [])
    }
    if shown := sorted(ran & names.keys()):
        terminalreporter.section("quarantined tests (tests/quarantine.toml)")
    for name in shown:
        terminalreporter.write_line(f"{name}: {first.count(name)} tried again; {names[name]}")


def _name(nodeid: str) -> str:
    return nodeid.partition("[")[0].partition("@")[0]
