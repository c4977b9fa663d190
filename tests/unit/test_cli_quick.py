"""A plain list is understood without click, and gives the same answers as with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from mpijob.cli import fast_list
from mpijob.cli.context import App
from mpijob.cli.render import job_table
from mpijob.cli.root import cli

PLAIN = [
    ("list",),
    ("ls",),
    ("list", "-n", "team-a"),
    ("list", "--namespace", "team-a", "-o", "json"),
    ("ls", "-A"),
    ("list", "--all-namespaces", "--output", "wide", "-l", "team=cv,tier!=test"),
    ("list", "--context", "far-away", "--selector", "a=b", "-o", "name"),
    ("list", "-n", "a", "-n", "b"),
]
NOT_PLAIN = [
    (),
    ("get", "a"),
    ("list", "--help"),
    ("list", "--phase", "Running"),
    ("list", "--limit", "5"),
    ("list", "-n"),
    ("list", "-n", ""),
    ("list", "-n", "4"),
    ("list", "-nteam-a"),
    ("list", "-o", "nonsense"),
    ("list", "-o", "csv"),
    ("list", "-o", "-A"),
    ("list", "--output=json"),
    ("list", "surplus"),
    ("-n", "a", "list"),
]


def asked(app: App, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return everything that a list was asked with, what was left out filled in."""
    given = {"all_namespaces": False, "selector": ""} | chosen
    kept = {key: given[key] for key in ("all_namespaces", "selector")}
    return kept | {"namespace": app.namespace, "place": app.place, "format": app.out.format}


@pytest.mark.req("FR-010")
@pytest.mark.parametrize("program", ["mpijob", "kubectl mpijob"])
@pytest.mark.parametrize("words", PLAIN)
def test_what_is_plain_means_the_same_as_to_click(
    words: tuple[str, ...], program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(job_table, "show_page", lambda app, **chosen: heard.append(asked(app, chosen)))
    monkeypatch.setattr("mpijob.cli.commands.list.show_page", job_table.show_page)
    plain = fast_list.understood(words)
    assert plain is not None
    assert fast_list.run(plain, program) == 0
    with pytest.raises(SystemExit):
        cli.main(list(words), prog_name=program, obj=App())
    assert heard[0] == heard[1]


@pytest.mark.parametrize("words", NOT_PLAIN)
def test_whatever_needs_a_judgement_is_left_to_click(words: tuple[str, ...]) -> None:
    assert fast_list.understood(words) is None


def test_the_options_understood_are_the_commands_own() -> None:
    command = cli.get_command(click.Context(cli), "list")
    assert command is not None
    known = {flag for option in command.params for flag in option.opts}
    assert {*fast_list._WITH_VALUE, *fast_list._FLAGS} <= known


def run(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MPIJOB_", "XDG_"))}
    env = {**kept, "HOME": str(home), "MPIJOB_ENGINE": "memory", **more}
    argv = [sys.executable, "-m", "mpijob", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)


@pytest.mark.parametrize("words", [("list",), ("list", "-o", "json")])
def test_errors_are_told_alike(tmp_path: Path, words: tuple[str, ...]) -> None:
    plain = run(tmp_path, *words, MPIJOB_ENGINE="nonsense")
    clicked = run(tmp_path, *words, "--limit", "100", MPIJOB_ENGINE="nonsense")
    assert plain.returncode == clicked.returncode == 2
    assert plain.stderr == clicked.stderr


def test_a_list_whose_reader_is_gone_ends_quietly(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", "mpijob", "list", "-o", "json"]
    env = {**os.environ, "HOME": str(tmp_path), "MPIJOB_ENGINE": "memory"}
    with os.fdopen(write, "wb") as gone:
        result = subprocess.run(argv, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=60, env=env)
    assert (result.returncode, result.stderr) == (0, "")
