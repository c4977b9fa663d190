"""The stored form of log lines: byte-exact, bounded, tolerant of what crashes leave behind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.observation.logs import cri

NOW = 1_475_713_029_669_794_202  # 2016-10-06T00:17:09.669794202Z
chunks = st.lists(
    st.binary(max_size=200) | st.sampled_from([b"\n", b"\r\n", b"\x00", b"\xff\n"]), max_size=20
)


def parse_line(raw: bytes) -> tuple[int, str, bool, bytes]:
    """Return time, stream, whether it is a piece, and text."""
    return cri.parse(raw)[:4]


def stamped(pieces: list[bytes], stream: str = "stdout") -> list[bytes]:
    stamper = cri.CriWriter(stream)
    stored = [line for piece in pieces for line in stamper.feed(piece, NOW)]
    return stored + stamper.flush(NOW)


def test_a_line_has_the_form_that_container_runtimes_write() -> None:
    assert cri.format_line(NOW, "stdout", b"text", False) == b"2016-10-06T00:17:09.669794202Z stdout F text\n"
    assert cri.format_line(NOW, "stderr", b"te", True) == b"2016-10-06T00:17:09.669794202Z stderr P te\n"


def test_a_line_with_a_newline_in_it_is_not_stored() -> None:
    with pytest.raises(ValueError, match="newline"):
        cri.format_line(NOW, "stdout", b"a\nb", False)


@given(st.integers(min_value=0, max_value=cri.SECOND_NS * 253402300799), st.binary(), st.booleans())
def test_what_is_stored_is_read_back(time_ns: int, text: bytes, partial: bool) -> None:
    text = text.replace(b"\n", b"")
    raw = cri.format_line(time_ns, "stderr", text, partial)
    assert parse_line(raw) == (time_ns or 0, "stderr", partial, text)


@pytest.mark.thorough
@pytest.mark.req("FR-OBS-002")
@given(chunks)
def test_every_byte_of_a_program_comes_back(pieces: list[bytes]) -> None:
    assert b"".join(cri.restore(stamped(pieces))) == b"".join(pieces)


@pytest.mark.thorough
@given(chunks, st.integers(min_value=1, max_value=50))
def test_the_parser_gives_the_same_lines_however_a_file_is_cut(pieces: list[bytes], size: int) -> None:
    stored = stamped(pieces)
    raw, parser = b"".join(stored), cri.Parser()
    lines = [line for at in range(0, len(raw), size) for line in parser.feed(raw[at : at + size])]
    assert lines + parser.flush() == [cri.parse(line) for line in stored]


def test_a_text_without_newline_at_the_end_is_a_whole_line_that_remembers_it() -> None:
    (line,) = stamped([b"no newline"])
    assert cri.parse(line) == cri.Parsed(NOW, "stdout", False, b"no newline", newline=False)


def test_a_line_of_exactly_one_piece_is_stored_whole() -> None:
    text = b"x" * cri.PIECE_BYTES
    assert [parse_line(line)[2:] for line in stamped([text, b"\n"])] == [(False, text)]


def test_a_huge_line_is_cut_into_pieces_and_never_held_in_memory() -> None:
    stamper, count, longest = cri.CriWriter("stdout"), 0, 0
    for _ in range(1600):  # 100 MiB
        for line in stamper.feed(b"x" * 65536, NOW):
            count, longest = count + 1, max(longest, len(line))
            assert cri.parse(line).partial
        assert len(stamper._rest) <= cri.PIECE_BYTES
    (end,) = stamper.feed(b"\n", NOW)
    assert not cri.parse(end).partial
    assert longest < cri.PIECE_BYTES + 100
    assert count * cri.PIECE_BYTES + len(cri.parse(end).text) == 1600 * 65536


def test_a_huge_line_in_one_chunk_among_short_ones_is_cut_too() -> None:
    data = b"short\n" + b"y" * 100_000 + b"\nafter\n"
    stored = stamped([data])
    assert max(map(len, stored)) < cri.PIECE_BYTES + 100
    assert b"".join(cri.restore(stored)) == data


@pytest.mark.security
def test_a_foreign_file_without_newlines_does_not_fill_the_memory() -> None:
    parser, total = cri.Parser(), 0
    lines = parser.feed(b"2016-10-06T00:17:09.669794202Z stdout F ")
    for _ in range(64):
        lines += parser.feed(b"z" * 65536)
        assert len(parser._rest) <= cri.LONGEST_LINE_BYTES
    lines += parser.feed(b"\n")
    total = sum(len(line.text) for line in lines)
    assert (total, {line.time_ns for line in lines}) == (64 * 65536, {NOW})
    assert [line.partial for line in lines] == [True] * (len(lines) - 1) + [False]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00\x01\x02",
        b"2016-10-06T00:17",
        b"2016-10-06T00:17:09.669794202Z stdout",
        b"not a log line at all",
        b"2016-13-46T00:17:09.669794202Z stdout F x",
        b"2016-02-30T00:17:09Z stdin F x",
        b"9999999999999999999 stdout F x",
        b"2016-10-06T00:17:09.66979420xZ stdout F x",
        b"2016-10-06T00:17:09Q stdout F x",
    ],
)
def test_a_damaged_line_is_all_text(raw: bytes) -> None:
    assert parse_line(raw) == (0, "stdout", False, raw)


@pytest.mark.thorough
@given(st.binary())
def test_no_bytes_make_the_parser_fail(raw: bytes) -> None:
    parser = cri.Parser()
    assert sum(len(line.text) for line in parser.feed(raw) + parser.flush()) <= len(raw)


def test_a_damaged_line_keeps_its_place_in_the_stream() -> None:
    good = cri.format_line(NOW, "stdout", b"good", False)
    assert [line.time_ns for line in cri.Parser().feed(good + b"torn\n" + good)] == [NOW, NOW, NOW]


@pytest.mark.parametrize(
    ("stamp", "offset_ns"),
    [
        ("2016-10-06T00:17:09.669794202Z", 0),
        ("2016-10-06T02:17:09.669794202+02:00", 0),
        ("2016-10-06T00:17:09.6Z", -69794202),
        ("2016-10-05T19:47:09.669794202-04:30", 0),
        ("2016-10-06T00:17:09Z", -669794202),
    ],
)
def test_time_stamps_of_other_runtimes_are_read(stamp: str, offset_ns: int) -> None:
    assert parse_line(f"{stamp} stdout F x".encode())[0] == NOW + offset_ns


def test_an_empty_line_is_a_line() -> None:
    assert [parse_line(line)[3] for line in stamped([b"\n\n"])] == [b"", b""]
    assert parse_line(b"2016-10-06T00:17:09.669794202Z stdout F")[1:] == ("stdout", False, b"")


def test_a_bar_that_is_redrawn_for_hours_is_stored_now_and_then() -> None:
    stamper, second = cri.CriWriter("stderr"), cri.SECOND_NS
    stored = [line for at in range(100, 112) for line in stamper.feed(b"\r%d%%" % at, at * second)]
    stored += stamper.feed(b"\rdone\n", 112 * second)
    parsed = [cri.parse(line) for line in stored]
    assert [line.time_ns // second for line in parsed] == [101, 106, 111, 112]
    assert b"".join(cri.restore(stored)) == b"".join(b"\r%d%%" % at for at in range(100, 112)) + b"\rdone\n"
