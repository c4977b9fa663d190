"""Everything that a reader can copy: commands in `console` blocks are run, those in others are at least commands.

`EXECUTED` are pages that are followed here from the top. Another page with a `console` block has to be named by a
test of its own; where commands cannot be run, they stand in a block of another kind.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests import pages
from tests.docs.blocks import Command, steps
from tests.docs.readers import ROOT, a_reader

from mpijob.cli.root import cli

EXECUTED = (
    "advanced", "checkpoints", "distribute-training", "failing", "log-analysis", "presets", "profiling",
    "run-a-slurm-script", "status", "tuning",
)  # fmt: skip
PAGES = sorted([*ROOT.glob("*.md"), *pages.guides(), *(pages.DOCS / "troubleshooting").glob("*.md")])
_SHELL = re.compile(r"^```(sh|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:kubectl |oc )?mpijob [a-z][^`]*)`")
_TYPED, _PLAIN = (
    re.compile(r"^\w*\$ ((?:kubectl |oc )?mpijob .*)$"),
    re.compile(r"^((?:kubectl |oc )?mpijob .*)$"),
)
_TO_FILL_IN = re.compile(r"does not exist|requires an argument|value for '([A-Z]+)': '\1'")  # by the reader
_ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "2>", "&", "2>/dev/null", "2>&1"}


@pytest.mark.engine
@pytest.mark.req("C-docs", "AC9")
@pytest.mark.parametrize("name", EXECUTED)
def test_the_commands_of_a_guide_work_as_it_says(tmp_path: Path, name: str) -> None:
    page = pages.read(name)
    wrong = a_reader(tmp_path).follow(page)
    assert wrong == [], "\n".join(wrong)
    assert any(isinstance(step, Command) for step in steps(page))


@pytest.mark.req("C-docs")
def test_every_page_with_commands_is_followed_by_a_test() -> None:
    told = {page.stem for page in pages.guides() if "```console\n" in page.read_text(encoding="utf-8")}
    folders = (ROOT / "tests" / "docs", ROOT / "tests/e2e/cluster", ROOT / "tests/e2e/frameworks")
    tests = [file for folder in folders for file in folder.glob("*.py") if file != Path(__file__)]
    text = "".join(file.read_text(encoding="utf-8") for file in tests)
    alone = {"cluster"}  # one line, for a cluster of the reader's own
    assert {name for name in told - {*EXECUTED} - alone if not re.search(rf'"{name}(\.md)?"', text)} == set()


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of ours in the shell blocks of a page and between its words."""
    for kind, block in _SHELL.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if found := (_PLAIN if kind == "sh" else _TYPED).match(line.strip()):
                yield _own(shlex.split(found[1], comments=True))
    for found in _INLINE.findall(_FENCE.sub("", text)):
        if not re.search(r"[…\[\]|{(]|COMMAND|\bmpijob mpi[a-z]", found):  # a form, not a command
            yield _own(shlex.split(found))


def _own(words: list[str]) -> list[str]:
    """Return the words up to where the shell does something else with the answer."""
    words = words[1:] if words[0] in ("kubectl", "oc") else words
    ends = [at for at, word in enumerate(words) if word in _ENDS]
    return words[1 : ends[0]] if ends else words[1:]


def complaint(words: list[str]) -> str:
    """Return what the command line would say against a command; it is read, never run."""
    try:
        context = cli.make_context("mpijob", list(words))
        while isinstance(context.command, click.Group) and (
            rest := [*context._protected_args, *context.args]
        ):
            name, command, rest = context.command.resolve_command(context, rest)
            assert command is not None
            context = command.make_context(name or "", rest, parent=context)
    except (click.exceptions.Exit, click.MissingParameter, click.exceptions.NoArgsIsHelpError):
        return ""  # --help, and a command that is spoken of without its job
    except click.ClickException as error:
        said = error.format_message()
        return "" if _TO_FILL_IN.search(said) else said
    return ""


@pytest.mark.req("C-docs", "FR-UX-003")
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_command_of_a_page_is_one_that_there_is(page: Path) -> None:
    told = list(commands(page.read_text(encoding="utf-8")))
    wrong = {" ".join(words): said for words in told if (said := complaint(words))}
    assert wrong == {}


def test_a_command_that_there_is_not_is_found() -> None:
    page = "```sh\nmpijob list --no-such-option\nmpijob nothing\nmpijob logs x | grep y\n```\n"
    said = [complaint(words) for words in commands(page)]
    assert ["No such option" in said[0], "no command" in said[1], said[2]] == [True, True, ""]


def main() -> None:
    """Follow pages by hand: `python -m tests.docs.test_pages distribute`."""
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            page = pages.read(name)
            sys.stdout.write("\n".join(a_reader(Path(folder)).follow(page)) or f"{name}: as it says\n")


if __name__ == "__main__":
    main()
