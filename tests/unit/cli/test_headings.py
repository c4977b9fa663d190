"""Every command has its place in the help on purpose: a new one fails here until somebody has chosen its group."""

from __future__ import annotations

import shlex

import click
import pytest
from tests.unit.cli_support import Cli

from mpijob.cli.command_table import ALIASES, ENTRIES
from mpijob.cli.context import App
from mpijob.cli.root import cli

HEADINGS = {
    "Run": "run create plan alloc array schedule",
    "Inspect": "list get describe logs events watch wait runs queue quota top curves acct artifacts ui mlflow "
    "tensorboard",
    "Diagnose": "why stacks doctor explain profile network patterns rules trace bundle image",
    "Manage": "cancel delete retry suspend resume scale exec",
    "Reuse": "clone compare template export register data",
    "Convert": "convert move schema",
    "Admin": "admin runtimes record audit mpi completion version",
    "Services": "recorder controller webhook operator broker notifier exporter",
}
WIDTH = 80
JOB_COMMANDS = ("create", "run", "plan", "alloc", "array")


def test_every_command_is_in_the_group_that_lists_it() -> None:
    found: dict[str, list[str]] = {}
    for name, entry in ENTRIES.items():
        found.setdefault(entry.heading, []).append(name)
    assert {heading: sorted(names) for heading, names in found.items()} == {
        heading: sorted(names.split()) for heading, names in HEADINGS.items()
    }


@pytest.mark.parametrize("option", ["--help", "--help-all"])
def test_the_help_has_the_groups_in_the_order_in_which_people_need_them(option: str) -> None:
    lines = Cli()(option).stdout.splitlines()
    shown = [line.rstrip(":") for line in lines if line.rstrip(":") in HEADINGS and line.endswith(":")]
    assert shown == list(HEADINGS)


def test_the_help_fits_a_screen_and_names_every_command() -> None:
    lines = Cli().ok("--help").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= WIDTH
    words = " ".join(lines).replace(",", " ").split()
    assert [name for name in ENTRIES if name not in words] == []


def test_the_full_help_has_the_sentence_and_the_other_names_of_every_command() -> None:
    text = " ".join(Cli().ok("--help-all").split())
    assert [name for name, entry in ENTRIES.items() if f"{name} {entry.help}" not in text] == []
    assert [alias for alias in ALIASES if alias not in text] == []


@pytest.mark.parametrize(("alias", "name"), [("ps", "list"), ("rm", "delete"), ("status", "get")])
def test_a_command_has_the_names_that_other_tools_give_it(alias: str, name: str) -> None:
    usage, *lines = Cli().ok(alias, "--help").splitlines()
    assert usage.startswith(f"Usage: mpijob {alias} ")
    assert lines == Cli().ok(name, "--help").splitlines()[1:]


@pytest.mark.parametrize("name", JOB_COMMANDS)
def test_the_help_has_the_common_flags_and_the_full_help_has_all(name: str) -> None:
    short, full = Cli().ok(name, "--help"), Cli().ok(name, "--help-all")
    assert "\n  --workers N" in short
    assert "--mpi-rank-variable" not in short
    assert "--mpi-rank-variable" in full
    assert full.index("Common job options:") < full.index("Size options:") < full.index("Scheduling options:")


def parts(words: str, command: click.Command) -> list[tuple[str, click.Command]]:
    """Return a command and the commands in it, with their words."""
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    return [(words, command), *(found for name, one in inner for found in parts(f"{words} {name}", one))]


def every_command() -> list[tuple[str, click.Command]]:
    context = click.Context(cli, obj=App())
    tops = [(name, cli.get_command(context, name)) for name in ENTRIES]
    return [found for name, top in tops if top is not None for found in parts(name, top)]


def examples() -> list[str]:
    return [example for entry in ENTRIES.values() for example in entry.examples]


def test_the_help_of_every_command_has_an_example() -> None:
    without = [words for words, command in every_command() if "\nExamples:\n  " not in (command.epilog or "")]
    assert without == []


@pytest.mark.parametrize("example", [one for one in examples() if one.startswith("mpijob ")])
def test_an_example_is_a_command_line_that_can_be_parsed(example: str) -> None:
    words = shlex.split(example.partition(" > ")[0])[1:]
    context: click.Context = click.Context(cli, info_name="mpijob", obj=App())
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        if command is not cli and words[0].startswith(
            "-"
        ):  # `audit --user jane` means `audit list --user jane`
            words = ["list", *words]
        _, found, rest = command.resolve_command(context, words)
        assert found is not None
        context = click.Context(found, info_name=found.name, parent=context, obj=App())
        command, words = found, rest
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    own = words[: words.index("--")] if "--" in words else words
    used = {word.partition("=")[0] for word in own if word.startswith("-") and word != "-"}
    assert used <= known


@pytest.mark.parametrize("name", HEADINGS["Services"].split())
def test_a_service_is_not_among_what_users_reuse(name: str) -> None:
    assert ENTRIES[name].heading == "Services"
