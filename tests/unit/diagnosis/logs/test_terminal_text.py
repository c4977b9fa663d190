"""Colours and progress bars hide nothing of a log from the rules."""

from __future__ import annotations

import pytest

from mpijob.diagnosis.logs.terminal_text import plain


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain text", b"plain text"),
        (b"\x1b[1;91mFileNotFoundError: \x1b[0m\x1b[1m[\x1b[0mErrno 2]", b"FileNotFoundError: [Errno 2]"),
        (b"\x1b]0;title\x07done\x1b[K", b"done"),
        (b"loading:   3%|# | 1/60\rloading: 100%|##| 60/60", b"loading: 100%|##| 60/60"),
        (b"epoch 3: 45 it/s\rTraceback (most recent call last):", b"Traceback (most recent call last):"),
        (b"ERROR: no input\r 50%|##| 1/2", b"ERROR: no input\r 50%|##| 1/2"),
        (b"job.sh: line 3: set: -\r: invalid option", b"job.sh: line 3: set: -\r: invalid option"),
        (b"end of a Windows line\r", b"end of a Windows line"),
    ],
)
def test_a_line_is_what_a_terminal_shows_of_it(line: bytes, shown: bytes) -> None:
    assert plain(line) == shown
