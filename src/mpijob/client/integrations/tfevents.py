"""Write TensorBoard event files: the metrics that ranks reported, one directory for each rank.

A file is a sequence of records (length, checksum, data, checksum); the data is the protocol buffer `Event`,
of which three fields are written: time, step and scalar values. `observation/metrics/event_files` reads such
files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpijob.observation.metrics import event_files

if TYPE_CHECKING:
    from mpijob.observation.metrics.training import Point

_VERSION = b"brain.Event:2"
_PLACES = ("step", "global_step", "iteration", "iter", "batch", "epoch")
_ELSE = (*_PLACES, "steps", "epochs")


class Writer:
    """Appends points to the event files of a directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._files: dict[int, str] = {}

    def write(self, told: Iterable[Point]) -> None:
        """Append points to the files of their ranks."""
        rows: dict[int, list[bytes]] = {}
        for one in told:
            if values := {name: value for name, value in one.values.items() if name not in _ELSE}:
                rows.setdefault(one.rank, []).append(record(event(one.time, step_of(one), values)))
        for rank, written in rows.items():
            with open(self._file(rank, written), "ab") as file:
                file.write(b"".join(written))

    def _file(self, rank: int, written: list[bytes]) -> str:
        if rank not in self._files:
            place = os.path.join(self._directory, f"rank-{rank}")
            os.makedirs(place, exist_ok=True)
            self._files[rank] = os.path.join(place, f"events.out.tfevents.0000000001.mpijob.{os.getpid()}")
            written.insert(0, record(_double(1, 0.0) + _bytes(3, _VERSION)))
        return self._files[rank]


def step_of(one: Point) -> int:
    return int(next((one.values[name] for name in _PLACES if name in one.values), 0.0))


def event(time: float, step: int, values: dict[str, float]) -> bytes:
    """Encode an Event with scalar values."""
    summary = b"".join(
        _bytes(1, _bytes(1, name.encode()) + _key(2, 5) + struct.pack("<f", _single(value)))
        for name, value in values.items()
    )
    return _double(1, time) + _key(2, 0) + _varint(step & (1 << 64) - 1) + _bytes(5, summary)


def _single(value: float) -> float:
    """Limit a value to the range of a 4-byte float."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value


def record(data: bytes) -> bytes:
    """Encode data as one record."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", event_files.masked_checksum(data))


def _key(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])


def _double(number: int, value: float) -> bytes:
    return _key(number, 1) + struct.pack("<d", value)


def _bytes(number: int, data: bytes) -> bytes:
    return _key(number, 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
