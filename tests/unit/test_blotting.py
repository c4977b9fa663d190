"""Values are hidden where bytes are written down: however they are cut, and nothing else is touched."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.observation import masking
from mpijob.observation.blotting import Blotter

pytestmark = [pytest.mark.security, pytest.mark.req("D-sanitize")]
SMALL = st.text("ab\n", min_size=0, max_size=40).map(str.encode)
VALUES = st.lists(st.text("ab", min_size=2, max_size=5), min_size=1, max_size=3)


def told(values: Sequence[str], pieces: Sequence[bytes]) -> bytes:
    blotter = Blotter(values)
    return b"".join(map(blotter.feed, pieces)) + blotter.flush()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


@given(SMALL, VALUES, st.lists(st.integers(0, 100), max_size=8))
def test_where_the_bytes_are_cut_makes_no_difference(
    data: bytes, values: list[str], places: list[int]
) -> None:
    whole = told(values, [data])
    assert told(values, cut(data, places)) == whole
    assert told(values, [data[at : at + 1] for at in range(len(data))]) == whole
    assert not any(value.encode() in whole for value in values)
    assert whole.count(b"\n") == data.count(b"\n")


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=8))
def test_bytes_without_a_value_pass_as_they_are(data: bytes, places: list[int]) -> None:
    assert told(["hunter2-SECRET"], cut(data.replace(b"hunter2-", b""), places)) == data.replace(
        b"hunter2-", b""
    )


def test_a_whole_line_never_waits_and_of_a_begun_one_only_what_may_become_a_value() -> None:
    blotter = Blotter(["hunter2-secret"])
    assert blotter.feed(b"the word is hunter2\n") == b"the word is hunter2\n"
    assert blotter.feed(b"and now hunter") == b"and now "
    assert blotter.feed(b"2-sec") == b""
    assert blotter.feed(b"ret!\n") == b"***!\n"
    assert blotter.feed(b"hunt") == b""
    assert blotter.flush() == b"hunt"
    assert blotter.flush() == b""


def test_values_that_overlap_leave_nothing_of_each_other() -> None:
    assert told(["xxabcdef", "abcdefghij"], [b"-xxabcdef", b"ghij-"]) == b"-***-"
    assert told(["abcabc"], [b"abcabc", b"abc", b"abc."]) == b"***."


def test_forms_of_a_value_are_hidden_and_none_goes_over_lines() -> None:
    values = masking.spellings(["first+line/x\nsecond line"])
    said = b"first+line/x\nsecond line\nfirst%2Bline%2Fx%0Asecond%20line\nZmlyc3QrbGluZS94CnNlY29uZCBsaW5l\n"
    assert told(values, [said]) == b"***\n***\n***\n***\n"


def test_base64_of_what_echo_says_is_hidden() -> None:
    values = masking.spellings(["hunter2-SECRET"])
    assert told(values, [b"aHVudGVyMi1TRUNSRVQK\n"]) == b"***\n"


def test_a_stream_of_one_letter_is_not_kept() -> None:
    blotter = Blotter(["aaaaaa"])
    for _ in range(100):
        blotter.feed(b"a" * 1000)
    assert len(blotter._held) < 6
