"""The list of all messages has those that are known, each with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.messages import ROOT, Message, messages

from mpijob.cli.command_table import ENTRIES

FOUND = messages()


@pytest.mark.parametrize(
    ("file", "kind", "text"),
    [
        ("src/mpijob/cli/command_table.py", "help", ENTRIES["why"].help),
        ("src/mpijob/cli/arguments/flags.py", "help", "Number of workers."),
        ("src/mpijob/cli/commands/submit.py", "error", "--server requires --dry-run"),
        ("src/mpijob/cli/commands/submit.py", "output", "follow it: {app.words(state.ref, 'logs -f')}"),
        ("src/mpijob/accounting/fields.py", "hint", "the fields are"),
        ("src/mpijob/diagnosis/rules/memory.py", "finding", "memory"),
        ("src/mpijob/model/spec/field_docs.py", "text", "Files that are uploaded"),
        ("frontend/src/pages", "page", "job"),
    ],
)
def test_a_known_message_is_listed_with_its_kind(file: str, kind: str, text: str) -> None:
    assert any(one.file.startswith(file) and one.kind == kind and text in one.text for one in FOUND)


def test_the_line_of_a_message_is_where_it_is_written() -> None:
    (message,) = (one for one in FOUND if (one.kind, one.text) == ("help", "Number of workers."))
    lines = Path(ROOT, message.file).read_text(encoding="utf-8").splitlines()
    assert message.text in lines[message.line - 1]


def test_what_is_no_sentence_is_left_out() -> None:
    assert not any(one.text.startswith(("SELECT ", "#!/")) for one in FOUND)
    assert all("\n" not in str(one) for one in FOUND)


def test_every_sentence_of_the_command_line_is_listed() -> None:
    texts = {one.text for one in FOUND}
    assert [entry.help for entry in ENTRIES.values() if entry.help not in texts] == []


def test_a_message_prints_as_one_line_with_its_place() -> None:
    assert str(Message("a.py", 3, "error", "no such job")) == "a.py:3: [error] no such job"
