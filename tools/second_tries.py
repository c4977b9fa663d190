"""A pytest plugin: shows why a test was run once more. What passed at its second try had a cause at its first."""

from __future__ import annotations

import pytest

_MOST_TOLD = 6000


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the first try of each test that was tried twice, the end of it at least."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext[-_MOST_TOLD:])
