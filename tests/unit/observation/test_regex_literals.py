"""What a pattern's matches must hold is told only where it is true, whatever the pattern."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.history_support import a_state, a_voice, line, texts

from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.log_writer import Capture
from mpijob.observation.logs.regex_literals import lines_with, required_literal


@pytest.mark.parametrize(
    ("pattern", "letters"),
    [
        ("out of memory", b"out of memory"), (r"rank \d+ failed", b" failed"), ("^Traceback", b"Traceback"),
        (r"loss=nan\.", b"loss=nan."), ("colou?rs", b"colo"), ("abc*", b""), ("abcd*", b"abc"), ("a{3}bcd", b"bcd"),
        ("[abc]defg]h", b"defg"), ("foo|bar", b""), ("(foo)", b""), ("(?i)foo", b""), ("ab", b""), ("", b""),
        ("x[^]abc]yz1", b""), ("été passé", "été passé".encode()),
    ],
)  # fmt: skip
def test_the_letters_of_a_pattern(pattern: str, letters: bytes) -> None:
    assert required_literal(pattern) == letters


@pytest.mark.thorough
@given(
    st.text(alphabet="ab.*+?[]{}\\^$d1|()-", max_size=12),
    st.lists(st.text(alphabet="abd1.-[]{}", max_size=12)),
)
def test_no_match_lacks_them(pattern: str, told: list[str]) -> None:
    try:
        compiled = re.compile(pattern.encode())
    except (re.error, OverflowError, RecursionError):
        return
    letters = required_literal(pattern)
    for text in (one.encode() for one in told):
        if compiled.search(text):
            assert letters in text


@given(
    st.lists(st.binary(max_size=8).filter(lambda one: b"\n" not in one), max_size=20),
    st.binary(min_size=1, max_size=2),
)
def test_lines_with_letters_are_those_that_hold_them(lines: list[bytes], letters: bytes) -> None:
    if b"\n" in letters:
        return
    block = b"".join(one + b"\n" for one in lines)
    assert [*lines_with(block, letters)] == [one + b"\n" for one in lines if letters in one]


def test_a_search_in_the_record_finds_the_same_lines(tmp_path: object) -> None:
    archive = Archive(str(tmp_path))
    archive.put_job(a_state(), now=1.0)
    capture = Capture(archive, archive.add_source(a_voice()))
    for number in range(2000):
        capture.write(line(number))
    capture.end()
    past = ArchiveReader(archive)
    assert texts(past, regex="line 77$") == ["line 77"]
    assert texts(past, regex="line 7[78]$", before=1) == ["line 76", "line 77", "line 78"]
    assert len(texts(past, regex="line")) == 2000
