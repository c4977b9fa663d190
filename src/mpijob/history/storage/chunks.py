"""Chunk files: a sequence of frames, each compressed and with its own checksum.

A frame of many lines stores their time stamps separately, column by column: they differ little from line to
line, which makes the stored data four times smaller. A frame of few lines, or of other lines, stores them as
they are.

A frame is appended first and then registered in the database, so a file may be longer than its registered
size (the writer was killed in between; the rest is cut off before the next frame) and, after a crash of the
machine, shorter or damaged: `intact_extent` returns the valid part. Which files exist is known by `archive`.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Magic, bytes of the payload, bytes of the lines, checksum of the payload.
_HEAD = struct.Struct("<4sIII")
# The magic tells how the payload is compressed, so that another method can be added later.
_PLAIN, _COLUMNS = b"mjl1", b"mjl2"
# Number of lines, bytes of their compressed time stamps.
_PARTS = struct.Struct("<II")
_STAMP_STRUCT = struct.Struct("31s")
# Length of `2026-11-15T16:43:01.123456789Z `, the space included.
_STAMP_LENGTH = 31
FRAME_BYTES = 1 << 20
# From this size on, a frame compresses well by itself.
LARGE_BYTES = 64 << 10
_FAST_LEVEL, _BEST_LEVEL = 1, 5


class CorruptChunk(Exception):
    """A file ends, or a checksum fails, before its registered size."""


class Extent(NamedTuple):
    """The valid part of a file: its bytes, and the lines in them."""

    size: int
    lines: int
    raw_bytes: int


def frame(lines: bytes, *, quick: bool = False) -> bytes:
    # A small frame is compressed quickly: it will be merged with others and compressed again.
    level = _FAST_LEVEL if quick or len(lines) < LARGE_BYTES else _BEST_LEVEL
    payload, magic = _encode_columns(lines, level) if len(lines) >= LARGE_BYTES else b"", _COLUMNS
    if not payload:
        payload, magic = zlib.compress(lines, level), _PLAIN
    return _HEAD.pack(magic, len(payload), len(lines), zlib.crc32(payload)) + payload


def _encode_columns(lines: bytes, level: int) -> bytes:
    """Return lines with their time stamps stored separately; b"" if a line has no stamp."""
    rows = lines.split(b"\n")
    if rows.pop():
        # The last line is incomplete.
        return b""
    stamps = b"".join([row[:_STAMP_LENGTH] for row in rows])
    count = len(rows)
    ends = stamps[_STAMP_LENGTH - 2 :: _STAMP_LENGTH], stamps[_STAMP_LENGTH - 1 :: _STAMP_LENGTH]
    if len(stamps) != _STAMP_LENGTH * count or ends != (b"Z" * count, b" " * count):
        return b""
    columns = zlib.compress(
        b"".join([stamps[column::_STAMP_LENGTH] for column in range(_STAMP_LENGTH)]), _FAST_LEVEL
    )
    rest = zlib.compress(b"\n".join([row[_STAMP_LENGTH:] for row in rows]) + b"\n", level)
    return _PARTS.pack(count, len(columns)) + columns + rest


def append(path: str, offset: int, frames: bytes) -> int:
    """Write frames after the valid part of a file, truncating what follows it; return the new size."""
    with _opened(path, os.O_RDWR | os.O_CREAT) as fd:
        size = os.fstat(fd).st_size
        if size < offset:
            raise CorruptChunk(path)
        if size > offset:
            os.ftruncate(fd, offset)
        _write(fd, frames, offset)
    return offset + len(frames)


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def write(path: str, pieces: Iterable[bytes], *, quick: bool = False, sync: bool = True) -> int:
    """Write a whole file of frames; return its size. With `sync`, it is on disk when this returns."""
    size = 0
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        for piece in pieces:
            data = frame(piece, quick=quick)
            _write(fd, data, size)
            size += len(data)
        if sync:
            os.fdatasync(fd)
    return size


def read(path: str, size: int) -> Iterator[bytes]:
    """Yield the lines of each frame within `size`; raise CorruptChunk where the file is damaged."""
    if not os.path.exists(path):
        raise CorruptChunk(path)
    with open(path, "rb") as file:
        offset = 0
        while offset < size:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                raise CorruptChunk(path)
            magic, length, raw_size, checksum = _HEAD.unpack(head)
            offset += _HEAD.size + length
            payload = file.read(length) if magic in (_PLAIN, _COLUMNS) and offset <= size else b""
            if len(payload) != length or not length or zlib.crc32(payload) != checksum:
                raise CorruptChunk(path)
            lines = (
                _decompress(payload, raw_size, path)
                if magic == _PLAIN
                else _decode_columns(payload, raw_size, path)
            )
            if len(lines) != raw_size:
                raise CorruptChunk(path)
            yield lines


def _decompress(payload: bytes, max_size: int, path: str) -> bytes:
    """Return the content of a payload, never more than its declared size."""
    try:
        return zlib.decompressobj().decompress(payload, max_size or 1)
    except zlib.error:
        raise CorruptChunk(path) from None


def _decode_columns(payload: bytes, raw_size: int, path: str) -> bytes:
    """Return lines with their time stamps in front again."""
    if len(payload) < _PARTS.size:
        raise CorruptChunk(path)
    count, columns_size = _PARTS.unpack_from(payload)
    if count * _STAMP_LENGTH > raw_size:
        raise CorruptChunk(path)
    columns = _decompress(payload[_PARTS.size : _PARTS.size + columns_size], count * _STAMP_LENGTH, path)
    rest = io.BytesIO(
        _decompress(payload[_PARTS.size + columns_size :], raw_size - count * _STAMP_LENGTH, path)
    ).readlines()
    if len(columns) != count * _STAMP_LENGTH or len(rest) != count:
        raise CorruptChunk(path)
    stamps = bytearray(len(columns))
    for column in range(_STAMP_LENGTH):
        stamps[column::_STAMP_LENGTH] = columns[column * count : (column + 1) * count]
    pieces: list[bytes] = [b""] * (2 * count)
    pieces[::2] = [stamp for (stamp,) in _STAMP_STRUCT.iter_unpack(stamps)]
    pieces[1::2] = rest
    return b"".join(pieces)


def sync(path: str) -> None:
    with _opened(path, os.O_RDONLY) as fd:
        os.fdatasync(fd)


def count_frames(path: str, size: int) -> int:
    offset = frame_count = 0
    with open(path, "rb") as file:
        while offset < size:
            file.seek(offset)
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                break
            offset += _HEAD.size + int(_HEAD.unpack(head)[1])
            frame_count += 1
    return frame_count


def intact_extent(path: str, size: int) -> Extent:
    """Return the valid part of a file, at most `size`."""
    extent = Extent(0, 0, 0)
    with contextlib.suppress(CorruptChunk):
        for lines in read(path, size):
            end = _next_frame(path, extent.size)
            extent = Extent(end, extent.lines + lines.count(b"\n"), extent.raw_bytes + len(lines))
    return extent


def _next_frame(path: str, offset: int) -> int:
    with open(path, "rb") as file:
        file.seek(offset)
        return offset + _HEAD.size + int(_HEAD.unpack(file.read(_HEAD.size))[1])


def merge_frames(pieces: Iterable[bytes], size: int = FRAME_BYTES) -> Iterator[bytes]:
    """Yield the same lines in blocks of about this size: fewer, larger frames compress better."""
    pending: list[bytes] = []
    pending_size = 0
    for piece in pieces:
        pending.append(piece)
        pending_size += len(piece)
        if pending_size >= size:
            yield b"".join(pending)
            pending, pending_size = [], 0
    if pending:
        yield b"".join(pending)
