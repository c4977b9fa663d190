"""What `mpijob ui` says before it becomes the page's server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli_support import Cli

from mpijob.api import static
from mpijob.cli.commands import ui


@pytest.mark.parametrize(
    ("built", "said", "unsaid"),
    [(True, "open this address in a browser", "make ui"), (False, "run make ui", "in a browser")],
)
def test_a_page_that_is_not_built_is_said_at_once(
    built: bool, said: str, unsaid: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "index.html"
    if built:
        page.write_text("")
    monkeypatch.setattr(ui, "_PAGE", page)
    monkeypatch.setattr(ui, "_exec_server", lambda options, listening: listening.close())
    told = Cli()("ui", "--port", "0", "--no-browser")
    assert told.exit_code == 0, told.stderr
    assert told.stdout.startswith("http://127.0.0.1:")
    assert (said in told.stderr, unsaid in told.stderr) == (True, False)


def test_the_command_looks_for_the_page_where_the_server_does() -> None:
    assert static.PLACE / "index.html" == ui._PAGE
