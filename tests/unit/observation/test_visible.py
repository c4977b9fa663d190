"""What a program prints cannot command the terminal that shows it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.observation.logs.escape import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"plain text", "plain text"),
        (b"a\tb", "a\tb"),
        ("grün ✓ 文".encode(), "grün ✓ 文"),
        (b"10%\r20%", "10%\\r20%"),
        (b"line of windows\r", "line of windows"),
        (b"nul \x00 here", "nul \\x00 here"),
        (b"bad \xff utf", "bad \\xff utf"),
    ],
)
def test_text_is_shown_as_it_was_said(text: bytes, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.security
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        (b"\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J".encode(), "\\x9b2J"),
        ("admin\u202eexe".encode(), "admin\\u202eexe"),
        ("\u2066x\u2069".encode(), "\\u2066x\\u2069"),
        ("a\U000e0041b".encode(), "a\\U000e0041b"),
        (b"\x7f\x08", "\\x7f\\x08"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: bytes, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.security
@given(st.binary())
def test_nothing_that_is_shown_can_move_a_cursor(text: bytes) -> None:
    assert not [char for char in visible(text) if (ord(char) < 32 and char != "\t") or 127 <= ord(char) < 160]
