"""Values are hidden where bytes are written down: however they are cut, and nothing else is touched."""

from __future__ import annotations

import base64
import itertools
import json
import random
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.observation.redaction import masking
from mpijob.observation.redaction.stream import StreamRedactor

pytestmark = [pytest.mark.security, pytest.mark.req("D-sanitize")]
SMALL = st.text("ab\n", min_size=0, max_size=40).map(str.encode)
VALUES = st.lists(st.text("ab", min_size=2, max_size=5), min_size=1, max_size=3)


def told(values: Sequence[str], pieces: Sequence[bytes]) -> bytes:
    blotter = StreamRedactor(values)
    return b"".join(map(blotter.feed, pieces)) + blotter.flush()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


@pytest.mark.thorough
@given(SMALL, VALUES, st.lists(st.integers(0, 100), max_size=8))
def test_where_the_bytes_are_cut_makes_no_difference(
    data: bytes, values: list[str], places: list[int]
) -> None:
    whole = told(values, [data])
    assert told(values, cut(data, places)) == whole
    assert told(values, [data[at : at + 1] for at in range(len(data))]) == whole
    assert not any(value.encode() in whole for value in values)
    assert whole.count(b"\n") == data.count(b"\n")


def hidden_slowly(values: Sequence[str], data: bytes) -> bytes:
    """Return what is to be written, by the definition: each run of bytes that overlapping values cover is one mask."""
    spans = sorted(
        (at, at + len(value))
        for value in map(str.encode, values)
        for at in range(len(data))
        if data.startswith(value, at)
    )
    shown, end = b"", 0
    for start, stop in spans:
        if start >= end:
            shown += data[end:start] + masking.MASK.encode()
        end = max(end, stop)
    return shown + data[end:]


def nested(chance: random.Random) -> tuple[list[str], bytes]:
    """Return values that hold and overlap each other, few or many, short and long, and a text made of them."""
    letters = chance.choice(("ab", "abcd", "abcdefgh"))
    whole = "".join(chance.choices(letters, k=chance.choice((40, 200))))
    longest = chance.choice((5, 12, 40, 120))
    values = []
    for _ in range(chance.choice((1, 4, 30, 120))):
        at = chance.randrange(len(whole))
        values.append(whole[at : at + chance.randint(2, longest)])
    said = [
        chance.choice((*values, chance.choice(whole), whole[chance.randrange(99) :], "\n")) for _ in range(30)
    ]
    return values, "".join(said).encode()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(60))
def test_what_is_hidden_is_what_a_slow_search_finds_however_small_the_pieces(seed: int) -> None:
    chance = random.Random(seed)
    values, data = nested(chance)
    ends = [0, *itertools.accumulate(chance.choices((1, 2, 3, 4), k=len(data)))]
    pieces = [data[start:end] for start, end in itertools.pairwise(ends) if start < len(data)]
    expected = hidden_slowly(values, data)
    assert told(values, pieces) == expected
    assert told(values, cut(data, chance.choices(range(len(data)), k=5))) == expected


@pytest.mark.thorough
@pytest.mark.parametrize(("lines", "length"), [(3000, 48), (8000, 9)])
def test_a_secret_of_many_lines_does_not_hold_up_what_is_said_without_lines(lines: int, length: int) -> None:
    chance = random.Random(1)
    value = "\n".join(base64.b64encode(chance.randbytes(length)).decode() for _ in range(lines))
    blotter = StreamRedactor(masking.spellings([value]))
    said = base64.b64encode(chance.randbytes(48 << 10))
    begun = time.process_time()
    assert blotter.feed(said) + blotter.flush() == said
    assert time.process_time() - begun < 1.0  # it took seconds, and takes milliseconds


@pytest.mark.thorough
@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=8))
def test_bytes_without_a_value_pass_as_they_are(data: bytes, places: list[int]) -> None:
    assert told(["hunter2-SECRET"], cut(data.replace(b"hunter2-", b""), places)) == data.replace(
        b"hunter2-", b""
    )


def test_a_whole_line_never_waits_and_of_a_begun_one_only_what_may_become_a_value() -> None:
    blotter = StreamRedactor(["hunter2-secret"])
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


def test_base64_in_lines_and_quoted_forms_are_hidden() -> None:
    values = masking.spellings(['pa"ss\\word1é', "0123456789" * 7])
    said = base64.encodebytes(b"0123456789" * 7 + b"\n") + json.dumps('pa"ss\\word1é').encode()
    assert told(values, cut(said, [5, 60, 90])) == b'***\n***\n"***"'


def test_a_stream_of_one_letter_is_not_kept() -> None:
    blotter = StreamRedactor(["aaaaaa"])
    for _ in range(100):
        blotter.feed(b"a" * 1000)
    assert len(blotter._held) < 6
