"""The files that hold lines: frames one after the other, each compressed and with its own checksum.

A frame of many lines holds their time stamps apart, digit by digit: they differ little from line to line there, and
are a quarter of what would be stored otherwise. A frame of few lines, or of others, holds them as they are.

A frame is appended first and counted in the database then, so a file may be longer than what counts (the
writer was killed in between: the rest is cut off before the next frame) and, after a crash of the machine,
shorter or torn: `intact` says how far it can be believed. Which files there are is the archive's business;
another place for them (an object store) would take this module's.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_HEAD = struct.Struct("<4sIII")  # magic, bytes of the payload, bytes of the lines, checksum of the payload
_PLAIN, _APART = b"mjl1", b"mjl2"
_PARTS = struct.Struct("<II")  # how many lines, bytes of their stamps
_ONE = struct.Struct("31s")
_STAMP = 31  # 2026-11-15T16:43:01.123456789Z and a space
FRAME_BYTES = 1 << 20
LARGE_BYTES = 64 << 10  # a frame from this size on compresses well by itself
_QUICK, _SMALL = 1, 5


class CorruptChunk(Exception):
    """A file ends, or its checksum fails, before all that was counted could be read."""


class Extent(NamedTuple):
    """How far a file can be believed: its good bytes, and the lines in them."""

    size: int
    lines: int
    raw_bytes: int


def frame(lines: bytes, *, quick: bool = False) -> bytes:
    """Return lines as one frame; few lines are not worth much trouble, for they are packed again with others."""
    level = _QUICK if quick or len(lines) < LARGE_BYTES else _SMALL
    payload, magic = _apart(lines, level) if len(lines) >= LARGE_BYTES else b"", _APART
    if not payload:
        payload, magic = zlib.compress(lines, level), _PLAIN
    return _HEAD.pack(magic, len(payload), len(lines), zlib.crc32(payload)) + payload


def _apart(lines: bytes, level: int) -> bytes:
    """Return lines with their stamps apart; nothing where one of them has no stamp."""
    rows = lines.split(b"\n")
    if rows.pop():
        return b""  # the last line has no end
    stamps = b"".join([row[:_STAMP] for row in rows])
    count = len(rows)
    ends = b"Z" * count, b" " * count
    if len(stamps) != _STAMP * count or (stamps[_STAMP - 2 :: _STAMP], stamps[_STAMP - 1 :: _STAMP]) != ends:
        return b""
    columns = zlib.compress(b"".join([stamps[place::_STAMP] for place in range(_STAMP)]), _QUICK)
    rest = zlib.compress(b"\n".join([row[_STAMP:] for row in rows]) + b"\n", level)
    return _PARTS.pack(count, len(columns)) + columns + rest


def append(path: str, at: int, frames: bytes) -> int:
    """Write frames behind what counts of a file, cutting off what does not; return the new size."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size < at:
            raise CorruptChunk(path)
        if size > at:
            os.ftruncate(fd, at)
        _write(fd, frames, at)
    finally:
        os.close(fd)
    return at + len(frames)


def _write(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def write(path: str, pieces: Iterable[bytes], *, quick: bool = False, sync: bool = True) -> int:
    """Write a whole file of frames, with `sync` on the disk when this returns; return its size."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        size = 0
        for piece in pieces:
            data = frame(piece, quick=quick)
            _write(fd, data, size)
            size += len(data)
        if sync:
            os.fdatasync(fd)
    finally:
        os.close(fd)
    return size


def read(path: str, size: int) -> Iterator[bytes]:
    """Yield the lines of each frame within `size`; raise Torn where the file cannot be believed."""
    if not os.path.exists(path):
        raise CorruptChunk(path)
    with open(path, "rb") as file:
        at = 0
        while at < size:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                raise CorruptChunk(path)
            magic, length, raw, checksum = _HEAD.unpack(head)
            at += _HEAD.size + length
            payload = file.read(length) if magic in (_PLAIN, _APART) and at <= size else b""
            if len(payload) != length or not length or zlib.crc32(payload) != checksum:
                raise CorruptChunk(path)
            lines = _unpacked(payload, raw, path) if magic == _PLAIN else _together(payload, raw, path)
            if len(lines) != raw:
                raise CorruptChunk(path)
            yield lines


def _unpacked(payload: bytes, most: int, path: str) -> bytes:
    """Return what a payload holds, never more than it said it would."""
    try:
        return zlib.decompressobj().decompress(payload, most or 1)
    except zlib.error:
        raise CorruptChunk(path) from None


def _together(payload: bytes, raw: int, path: str) -> bytes:
    """Return lines with their stamps before them again."""
    if len(payload) < _PARTS.size:
        raise CorruptChunk(path)
    count, size = _PARTS.unpack_from(payload)
    if count * _STAMP > raw:
        raise CorruptChunk(path)
    columns = _unpacked(payload[_PARTS.size : _PARTS.size + size], count * _STAMP, path)
    rest = io.BytesIO(_unpacked(payload[_PARTS.size + size :], raw - count * _STAMP, path)).readlines()
    if len(columns) != count * _STAMP or len(rest) != count:
        raise CorruptChunk(path)
    stamps = bytearray(len(columns))
    for place in range(_STAMP):
        stamps[place::_STAMP] = columns[place * count : (place + 1) * count]
    pieces: list[bytes] = [b""] * (2 * count)
    pieces[::2] = [stamp for (stamp,) in _ONE.iter_unpack(stamps)]
    pieces[1::2] = rest
    return b"".join(pieces)


def sync(path: str) -> None:
    """Have a file on the disk when this returns."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def count(path: str, size: int) -> int:
    """Return how many frames a file has."""
    at = frames = 0
    with open(path, "rb") as file:
        while at < size:
            file.seek(at)
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                break
            at += _HEAD.size + int(_HEAD.unpack(head)[1])
            frames += 1
    return frames


def intact(path: str, size: int) -> Extent:
    """Return how much of a file can be believed, at most `size`."""
    good = Extent(0, 0, 0)
    at = 0
    try:
        for lines in read(path, size):
            at = _next(path, at)
            good = Extent(at, good.lines + lines.count(b"\n"), good.raw_bytes + len(lines))
    except CorruptChunk:
        pass
    return good


def _next(path: str, at: int) -> int:
    with open(path, "rb") as file:
        file.seek(at)
        return at + _HEAD.size + int(_HEAD.unpack(file.read(_HEAD.size))[1])


def joined(pieces: Iterable[bytes], size: int = FRAME_BYTES) -> Iterator[bytes]:
    """Yield the same lines in pieces of about this size: fewer, larger frames compress better."""
    held: list[bytes] = []
    count = 0
    for piece in pieces:
        held.append(piece)
        count += len(piece)
        if count >= size:
            yield b"".join(held)
            held, count = [], 0
    if held:
        yield b"".join(held)
