"""Reads and writes the log format of container runtimes (CRI), which local logs use too.

A line is `2016-10-06T00:17:09.669794202Z stdout F text`; `P` instead of `F` marks a part of a long line that
the next one continues. Further tags may follow a colon: `F:eof` marks a stream that ended without a newline.
Other readers take it for `F`, and `restore` returns every byte. Text is not decoded: NUL, CR and invalid
UTF-8 are kept. Engines read pipes and write files; `live_merge` orders parsed lines.
"""

from __future__ import annotations

import time
from calendar import timegm
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

# The kubelet's and containerd's size of a part.
PIECE_BYTES = 16 * 1024
LONGEST_LINE_BYTES = 256 * 1024
SECOND_NS = 1_000_000_000
PROGRESS_BAR_NS = 5 * SECOND_NS

_STREAMS = {b"stdout": "stdout", b"stderr": "stderr"}
# The end of the year 9999: later timestamps would be longer than 30 bytes.
_LAST_SECOND = 253402300799
_HEADER_BYTES = 64


class Parsed(NamedTuple):
    """One stored line. `time_ns` is 0 if the line is damaged."""

    time_ns: int
    stream: str
    partial: bool
    text: bytes
    newline: bool = True


def format_line(time_ns: int, stream: str, text: bytes, partial: bool) -> bytes:
    """Return one stored line with its newline."""
    if b"\n" in text:
        raise ValueError("the text of one log line holds a newline; split it first")
    return _prefix(time_ns, stream, b"P" if partial else b"F") + text + b"\n"


def parse(raw: bytes) -> Parsed:
    """Return one stored line, with or without its newline. All of a damaged one is text, at time 0."""
    line = raw[:-1] if raw.endswith(b"\n") else raw
    header = line.split(b" ", 3)
    if len(header) < 3:
        return Parsed(0, "stdout", False, line)
    time_ns, stream, tag = _nanoseconds(header[0]), _STREAMS.get(header[1]), header[2]
    if time_ns is None or stream is None or tag[:1] not in (b"F", b"P"):
        return Parsed(0, "stdout", False, line)
    partial = tag[:1] == b"P"
    return Parsed(
        time_ns, stream, partial, header[3] if len(header) > 3 else b"", not partial and tag != b"F:eof"
    )


def nanoseconds(text: bytes) -> int:
    """Return a timestamp in nanoseconds since the epoch, 0 if it is none."""
    return _nanoseconds(text) or 0


def stamped(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that begin with a timestamp. The kubelet inserts its own errors without one."""
    return (line for line in lines if line[4:5] == b"-" and line[10:11] == b"T")


def restore(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes that the program wrote, from its stored lines."""
    for raw in lines:
        line = parse(raw)
        yield line.text + b"\n" if line.newline else line.text


class CriWriter:
    """Turns the bytes of one pipe into stored lines. It holds back at most one part of 16 KiB."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._rest = bytearray()
        # When a line of this stream was last stored.
        self._stored_ns = 0

    def feed(self, data: bytes, now_ns: int) -> list[bytes]:
        """Return the lines that these bytes complete, all with one timestamp."""
        if b"\n" not in data:
            self._rest += data
            stored = self._parts(now_ns) if len(self._rest) > PIECE_BYTES else []
            return stored or self._progress_bar(now_ns)
        if self._rest:
            data = bytes(self._rest) + data
        *lines, rest = data.split(b"\n")
        self._rest, self._stored_ns = bytearray(rest), now_ns
        full = _prefix(now_ns, self._stream, b"F")
        # Checked for all lines at once: this runs for every byte of output, and long lines are rare.
        if len(data) > PIECE_BYTES and len(max(lines, key=len)) > PIECE_BYTES:
            stored = [piece for line in lines for piece in self._split(line, now_ns, full)]
        else:
            stored = [full + line + b"\n" for line in lines]
        return stored + self._parts(now_ns) if len(rest) > PIECE_BYTES else stored

    def flush(self, now_ns: int) -> list[bytes]:
        """Return the rest of a pipe that ended without a newline."""
        if not self._rest:
            return []
        stored = [_prefix(now_ns, self._stream, b"F:eof") + bytes(self._rest) + b"\n"]
        self._rest = bytearray()
        return stored

    def _progress_bar(self, now_ns: int) -> list[bytes]:
        # A progress bar that is redrawn with carriage returns may end its line hours later, so it is stored
        # now and then.
        end = self._rest.rfind(b"\r")
        if end <= 0 or now_ns - self._stored_ns < PROGRESS_BAR_NS:
            return []
        piece, self._rest, self._stored_ns = bytes(self._rest[:end]), self._rest[end:], now_ns
        return [_prefix(now_ns, self._stream, b"P") + piece + b"\n"]

    def _parts(self, now_ns: int) -> list[bytes]:
        # One byte at least is kept: the line's newline may still arrive.
        whole = (len(self._rest) - 1) // PIECE_BYTES * PIECE_BYTES
        cut, self._rest = bytes(self._rest[:whole]), self._rest[whole:]
        piece = _prefix(now_ns, self._stream, b"P")
        return [piece + cut[at : at + PIECE_BYTES] + b"\n" for at in range(0, whole, PIECE_BYTES)]

    def _split(self, line: bytes, now_ns: int, full: bytes) -> list[bytes]:
        if len(line) <= PIECE_BYTES:
            return [full + line + b"\n"]
        piece = _prefix(now_ns, self._stream, b"P")
        cuts = [line[at : at + PIECE_BYTES] for at in range(0, len(line), PIECE_BYTES)]
        return [*(piece + cut + b"\n" for cut in cuts[:-1]), full + cuts[-1] + b"\n"]


class Parser:
    """Parses a stored stream that arrives in chunks; its memory is bounded whatever the file contains."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._last_ns = 0
        # The header of a line that is too long to be held and is returned in parts.
        self._open: Parsed | None = None

    def feed(self, chunk: bytes) -> list[Parsed]:
        if b"\n" not in chunk:
            self._rest += chunk
            return self._overlong() if len(self._rest) > LONGEST_LINE_BYTES else []
        if self._rest:
            chunk = bytes(self._rest) + chunk
        *lines, rest = chunk.split(b"\n")
        self._rest = bytearray(rest)
        parsed = [self._line(line) for line in lines]
        return parsed + self._overlong() if len(rest) > LONGEST_LINE_BYTES else parsed

    def flush(self) -> list[Parsed]:
        """Return the last line if its newline never arrived, as after a crash of the writer."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [self._line(rest)] if rest or self._open else []

    def _line(self, raw: bytes) -> Parsed:
        if self._open is not None:
            line, self._open = self._open._replace(text=raw), None
            return line
        line = parse(raw)
        if line.time_ns:
            self._last_ns = line.time_ns
            return line
        # A damaged line keeps its place in the stream.
        return line._replace(time_ns=self._last_ns)

    def _overlong(self) -> list[Parsed]:
        cut, self._rest = bytes(self._rest), bytearray()
        line = self._open._replace(text=cut) if self._open is not None else self._line(cut)
        self._open = line
        return [line._replace(partial=True, newline=False)]


def stamp(time_ns: int) -> bytes:
    """Return the timestamp of a stored line, which has 30 bytes."""
    seconds, nanoseconds = divmod(max(0, time_ns), SECOND_NS)
    return b"%s.%09dZ" % (_date(min(seconds, _LAST_SECOND)), nanoseconds)


def _prefix(time_ns: int, stream: str, tag: bytes) -> bytes:
    return b"%s %s %s " % (stamp(time_ns), stream.encode(), tag)


@lru_cache(maxsize=64)
def _date(seconds: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode()


def _nanoseconds(stamp: bytes) -> int | None:
    # The common form has 30 bytes; other runtimes trim zeros and write offsets.
    if len(stamp) == 30 and stamp[29:] == b"Z" and stamp[20:29].isdigit():
        seconds, fraction = _seconds(stamp[:19]), stamp[20:29]
    else:
        seconds, fraction = _other_form(stamp)
    return None if seconds is None else seconds * SECOND_NS + int(fraction)


def _other_form(stamp: bytes) -> tuple[int | None, bytes]:
    if not 20 <= len(stamp) <= _HEADER_BYTES:
        return None, b"0"
    clock, zone = stamp[19:], b"Z"
    for sign in (b"Z", b"+", b"-"):
        if (at := clock.find(sign)) >= 0:
            clock, zone = clock[:at], clock[at:]
            break
    fraction, offset, seconds = clock[1:10].ljust(9, b"0"), _offset(zone), _seconds(stamp[:19])
    if seconds is None or offset is None or (clock and clock[:1] != b".") or not fraction.isdigit():
        return None, b"0"
    return seconds - offset, fraction


@lru_cache(maxsize=64)
def _offset(zone: bytes) -> int | None:
    if zone == b"Z":
        return 0
    hours, colon, minutes = zone[1:].partition(b":")
    if not (colon and len(hours) == len(minutes) == 2 and hours.isdigit() and minutes.isdigit()):
        return None
    return (-1 if zone[:1] == b"-" else 1) * (int(hours) * 3600 + int(minutes) * 60)


@lru_cache(maxsize=1024)
def _seconds(date: bytes) -> int | None:
    if date[4:5] + date[7:8] + date[10:11] + date[13:14] + date[16:17] != b"--T::":
        return None
    numbers = (date[0:4], date[5:7], date[8:10], date[11:13], date[14:16], date[17:19])
    if not all(number.isdigit() for number in numbers):
        return None
    year, month, day, hour, minute, second = map(int, numbers)
    if not (1 <= month <= 12 and 1 <= day <= 31 and year >= 1):
        return None
    try:
        return timegm((year, month, day, hour, minute, second))
    # A date such as 30 February.
    except ValueError:
        return None
