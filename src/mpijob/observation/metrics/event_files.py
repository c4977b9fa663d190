"""Reads the scalars of TensorBoard's event files; `client/integrations/tfevents` writes such files.

A file is a row of records: length, checksum of the length, data, checksum of the data. The data is the protocol buffer
`Event` of TensorBoard; only its time, step and scalar values are read, from `simple_value` (PyTorch, tensorboardX) or
from a tensor of one element (TensorFlow 2). Programs write these files, so nothing in them is trusted: every length is
checked, and memory is bounded by `Budget` whatever a file says. What is not read is named in the notes.
"""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import IO, Any, NamedTuple

import msgspec

POINTS = 720
# Tags come from programs, so their number is limited.
MOST_SERIES = 200
LONGEST_TAG = 200
# A larger record contains images, graphs or text, and no scalar.
_LARGEST_RECORD = 64 << 10
_LENGTH = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


class ScalarSeries(msgspec.Struct, frozen=True):
    """One tag of one run, downsampled; `count` is the number of values that were read.

    A run is a directory of event files, as in TensorBoard. A value that is no number is None.
    """

    run: str
    tag: str
    times: tuple[float, ...]
    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    count: int
    last: float | None
    least: float | None
    most: float | None


class EventScalars(msgspec.Struct, frozen=True):
    """Scalars in the event files of a job, the number of files, and what could not be read."""

    series: tuple[ScalarSeries, ...] = ()
    files: int = 0
    notes: tuple[str, ...] = ()


class Budget(NamedTuple):
    """How much of one file is read."""

    # Of records that are read completely.
    bytes: int = 4 << 20
    # Including those that are skipped.
    records: int = 1_000_000
    series: int = MOST_SERIES
    points: int = POINTS


class Curve:
    """The values of one tag: all at first, then every n-th, and always the last."""

    def __init__(self, points: int) -> None:
        self._most = max(2, points)
        self._times, self._steps, self._values = array("d"), array("q"), array("d")
        self._stride = 1
        self._last: tuple[float, int, float] | None = None
        self.count = 0
        self._least, self._largest = math.inf, -math.inf

    def add(self, point: tuple[float, int, float]) -> None:
        """Add a value; a step that goes back replaces the later ones, as in TensorBoard."""
        time, step, value = point
        if self._last is not None and step < self._last[1]:
            end = next((at for at in range(len(self._steps), 0, -1) if self._steps[at - 1] < step), 0)
            for kept in (self._times, self._steps, self._values):
                del kept[end:]
        if self.count % self._stride == 0:
            self._times.append(time)
            self._steps.append(step)
            self._values.append(value)
            self._thin()
        self._last = point
        self.count += 1
        if math.isfinite(value):
            self._least, self._largest = min(self._least, value), max(self._largest, value)

    def _thin(self) -> None:
        if len(self._times) >= 2 * self._most:
            for kept in (self._times, self._steps, self._values):
                del kept[1::2]
            self._stride *= 2

    def points(self) -> list[tuple[float, int, float]]:
        """Return the kept values in order, the last one at the end."""
        if self._last is None:
            return []
        kept = [*zip(self._times, self._steps, self._values, strict=True)]
        if (self.count - 1) % self._stride == 0:
            # It is the last one, which is added below.
            kept.pop()
        return [*kept[:: max(1, math.ceil(len(kept) / (self._most - 1)))], self._last]

    def series(self, run: str, tag: str) -> ScalarSeries:
        """Return it as a value."""
        kept = self.points()
        finite = self._least <= self._largest
        return ScalarSeries(
            run,
            tag,
            tuple(time for time, _, _ in kept),
            tuple(step for _, step, _ in kept),
            tuple(_finite(value) for _, _, value in kept),
            self.count,
            _finite(kept[-1][2]) if kept else None,
            self._least if finite else None,
            self._largest if finite else None,
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


class EventFile:
    """The contents of one file: its curves by tag, the times of the first and last value, and what was not read."""

    def __init__(self, budget: Budget) -> None:
        self.curves: dict[str, Curve] = {}
        self.notes: list[str] = []
        self.first, self.last = math.inf, -math.inf
        self._budget = budget
        # Tags that are not scalars.
        self._other: set[str] = set()
        self._skipped_values = 0

    def add(self, event: Event) -> None:
        """Add the scalars of an event."""
        for value in event.values:
            # TensorFlow names the plugin with the first value of a tag only.
            if value.plugin not in ("", "scalars") and len(self._other) < MOST_SERIES:
                self._other.add(value.tag)
            if value.value is None or value.plugin not in ("", "scalars") or value.tag in self._other:
                continue
            curve = self.curves.get(value.tag)
            if curve is None:
                if len(self.curves) >= self._budget.series:
                    self._skipped_values += 1
                    continue
                curve = self.curves[value.tag] = Curve(self._budget.points)
            curve.add((event.time, event.step, value.value))
            self.first, self.last = min(self.first, event.time), max(self.last, event.time)

    def end(self, broken: int) -> None:
        """Add notes about damaged records and tags that were left out."""
        if broken:
            self.notes.append(f"{broken} damaged {'record was' if broken == 1 else 'records were'} skipped")
        if self._skipped_values:
            self.notes.append(f"only the first {self._budget.series} tags are shown")


def read(file: IO[bytes], size: int, budget: Budget | None = None) -> EventFile:
    """Return the scalars of a file of `size` bytes. An incomplete last record is still being written."""
    found, broken, at = EventFile(budget := budget or Budget()), 0, 0
    share = max(1, math.ceil(size / max(1, budget.bytes)))
    # At random: every n-th record may always be of the same tag.
    chosen = random.Random(0)  # noqa: S311 - not for secrets
    if share > 1:
        found.notes.append(f"the file has {size >> 20} MiB; about one of {share} values is shown")
    lengths = _Lengths()
    for _ in range(budget.records):
        head = file.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            break
        length, checksum = _LENGTH.unpack(head)
        if lengths[length] != checksum:
            found.notes.append(f"wrong checksum at byte {at}; the rest of the file is not read")
            break
        begin, at = at + _LENGTH.size, at + _LENGTH.size + length + _CHECKSUM.size
        if at > size:
            # Still being written.
            break
        if length > _LARGEST_RECORD or (share > 1 and chosen.random() * share >= 1):
            file.seek(at)
            continue
        data, end = file.read(length), file.read(_CHECKSUM.size)
        if len(data) < length or len(end) < _CHECKSUM.size:
            break
        try:
            if masked_checksum(data) != _CHECKSUM.unpack(end)[0]:
                raise _Malformed
            found.add(event(data))
        except _Malformed:
            broken += 1
            if broken == 1:
                found.notes.append(f"wrong checksum or contents at byte {begin}")
    else:
        found.notes.append(f"only the first {budget.records} records are read")
    found.end(broken)
    return found


def merged(files: Sequence[tuple[str, str, EventFile]], budget: Budget | None = None) -> list[ScalarSeries]:
    """Return the series of all files, given with the run and the name of the writer.

    Files of one run that follow each other are a restarted run; those written at the same time, as by several
    ranks, are separate runs.
    """
    budget = budget or Budget()
    runs: dict[str, list[tuple[str, EventFile]]] = {}
    for run, writer, file in sorted(files, key=lambda entry: (entry[0], entry[2].first, entry[1])):
        if file.curves:
            runs.setdefault(run, []).append((writer, file))
    named: list[tuple[str, EventFile]] = []
    for run, written in runs.items():
        if _overlap([file for _, file in written]):
            named += [(f"{run} ({writer})", file) for writer, file in written]
        else:
            named += [(run, file) for _, file in written]
    return _joined(named, budget)


def _overlap(files: Iterable[EventFile]) -> bool:
    last = -math.inf
    for file in files:
        if file.first < last:
            return True
        last = max(last, file.last)
    return False


def _joined(files: Iterable[tuple[str, EventFile]], budget: Budget) -> list[ScalarSeries]:
    curves: dict[tuple[str, str], list[Curve]] = {}
    for run, file in files:
        for tag, curve in file.curves.items():
            curves.setdefault((tag, run), []).append(curve)
    return [
        _continued(parts, budget.points).series(run, tag) for (tag, run), parts in sorted(curves.items())
    ][: budget.series]


def _continued(parts: Sequence[Curve], points: int) -> Curve:
    if len(parts) == 1:
        return parts[0]
    whole = Curve(points)
    for part in parts:
        for point in part.points():
            whole.add(point)
    whole.count = sum(part.count for part in parts)
    return whole


class _Lengths(dict[int, int]):
    """Checksums of record lengths, cached: a file has few different lengths."""

    def __missing__(self, length: int) -> int:
        found = masked_checksum(length.to_bytes(8, "little"))
        if len(self) < _LARGEST_RECORD:
            self[length] = found
        return found


# -- one event ----------------------------------------------------------------------------------------
class Value(NamedTuple):
    """One value of an event's summary; None if it is not a scalar."""

    tag: str
    plugin: str
    value: float | None


class Event(NamedTuple):
    """A time, a step and its values."""

    time: float
    step: int
    values: tuple[Value, ...]


class _Malformed(ValueError):
    """The bytes are not a valid message."""


_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")


def event(data: bytes) -> Event:
    """Return an event. Its fields are: time 1, step 2, summary 5."""
    time, step, values = 0.0, 0, list[Value]()
    for number, kind, value in _fields(data):
        if number == 1 and kind == _EIGHT:
            time = _DOUBLE.unpack(value)[0]
        elif number == 2 and kind == _VARINT:
            step = _signed(value)
        elif number == 5 and kind == _BYTES:
            values += [
                _value(field) for number, kind, field in _fields(value) if (number, kind) == (1, _BYTES)
            ]
    return Event(time if math.isfinite(time) else 0.0, step, tuple(values))


def _value(data: bytes) -> Value:
    # Fields: tag 1, simple_value 2, tensor 8, metadata 9.
    tag, plugin, found = "", "", None
    for number, kind, value in _fields(data):
        if number == 1 and kind == _BYTES:
            tag = value[: 4 * LONGEST_TAG].decode(errors="replace")[:LONGEST_TAG]
        elif number == 2 and kind == _FOUR:
            found = float(_FLOAT.unpack(value)[0])
        elif number == 8 and kind == _BYTES:
            found = _tensor(value)
        elif number == 9 and kind == _BYTES:
            plugin = _plugin(value)
    return Value("".join(char if char.isprintable() else "\ufffd" for char in tag), plugin, found)


def _plugin(data: bytes) -> str:
    # Fields: plugin_data 1, and in it plugin_name 1.
    for number, kind, value in _fields(data):
        if (number, kind) == (1, _BYTES):
            names = [name for number, kind, name in _fields(value) if (number, kind) == (1, _BYTES)]
            return names[-1][:LONGEST_TAG].decode(errors="replace") if names else ""
    return ""


# By TensorFlow's number of the type: the format of packed content, and the field of unpacked values.
_PACKED = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10), 14: ("<H", 13), 19: ("<e", 13)}
_BFLOAT16, _HALF = 14, 19


def _tensor(data: bytes) -> float | None:
    # Only a tensor without dimensions. Fields: type 1, shape 2, content 4, or a list of values.
    kind_of, content, lists, shape = 0, b"", dict[int, bytes | int](), b""
    for number, kind, value in _fields(data):
        if number == 1 and kind == _VARINT:
            kind_of = value
        elif number == 2 and kind == _BYTES:
            shape = value
        elif number == 4 and kind == _BYTES:
            content = value
        else:
            lists[number] = value
    if kind_of not in _PACKED or any(number == 2 for number, _, _ in _fields(shape)):
        return None
    form, place = _PACKED[kind_of]
    if content:
        if len(content) != struct.calcsize(form):
            return None
        (number,) = struct.unpack(form, content)
        return _from_bfloat16(number) if kind_of == _BFLOAT16 else float(number)
    return _unpacked_value(lists.get(place), form, kind_of)


def _unpacked_value(value: bytes | int | None, form: str, kind_of: int) -> float | None:
    if value is None:
        # Protocol buffers omit zeros.
        return 0.0
    if form in ("<f", "<d"):
        is_valid = isinstance(value, bytes) and len(value) == struct.calcsize(form)
        return float(struct.unpack(form, value)[0]) if is_valid and isinstance(value, bytes) else None
    if isinstance(value, bytes):
        whole, end = _varint(value, 0)
        if end != len(value):
            return None
    else:
        whole = value
    if kind_of == _BFLOAT16:
        return _from_bfloat16(whole & 0xFFFF)
    return float(
        struct.unpack("<e", struct.pack("<H", whole & 0xFFFF))[0] if kind_of == _HALF else _signed(whole)
    )


def _from_bfloat16(number: int) -> float:
    return float(_FLOAT.unpack(struct.pack("<I", number << 16))[0])


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the fields of a message: number, wire type, and an int or bytes."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, kind, value
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_EIGHT, _FOUR):
            length = 8 if kind == _EIGHT else 4
        else:
            raise _Malformed
        if length > end - at:
            raise _Malformed
        yield key >> 3, kind, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise _Malformed


# -- checksums ----------------------------------------------------------------------------------------
def masked_checksum(data: bytes) -> int:
    """Return the checksum as stored in the file: rotated and offset, as TensorFlow does."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Return the Castagnoli checksum; zlib has only the other polynomial."""
    crc, table = 0xFFFFFFFF, _pairs()
    for (pair,) in _PAIR.iter_unpack(data[: len(data) & ~1]):
        crc = crc >> 16 ^ table[(crc ^ pair) & 0xFFFF]
    if len(data) & 1:
        crc = crc >> 8 ^ _row((crc ^ data[-1]) & 0xFF)
    return crc ^ 0xFFFFFFFF


_PAIR = struct.Struct("<H")


@cache
def _pairs() -> array[int]:
    # A table for two bytes at once, which is twice as fast as one byte at a time.
    single = [_row(byte) for byte in range(256)]
    return array(
        "I", [(low := single[pair & 0xFF]) >> 8 ^ single[(pair >> 8 ^ low) & 0xFF] for pair in range(1 << 16)]
    )


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte
