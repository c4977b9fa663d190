"""Write the lines of one log source into an archive; after a crash, nothing is lost or stored twice.

Lines are buffered briefly, appended to the source's open chunk as one frame, and then registered in the
database. The position is always read from what is stored: after a crash, the caller reads `position` and
continues from there with the engine's lines. A full chunk is rewritten in larger frames and sealed. The file
format is in `storage/chunks`; following the engine's log is done by the engine's recorder.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from itertools import groupby

import msgspec

from mpijob.history.archive import Archive
from mpijob.history.records import Chunk, Gap, LogSource, Position, format_numbers, parse_numbers
from mpijob.history.storage import chunks, tiering
from mpijob.history.storage.database import storage_errors
from mpijob.observation.logs import cri

BUFFER_BYTES = 256 << 10
CHUNK_BYTES = 4 << 20
DAMAGED = "a part of the stored log was damaged"

RankParser = Callable[[bytes], Iterable[int]]


class Capture:
    """Writes the lines of one log source. One thread may write while another flushes."""

    def __init__(self, archive: Archive, source: LogSource, parse_ranks: RankParser | None = None) -> None:
        self.source = source if source.id else archive.add_source(source)
        self._archive = archive
        self._parse_ranks = parse_ranks
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._lock = threading.Lock()
        # The time range that was stored once and is damaged now.
        self.damaged_range: tuple[int, int] | None = None
        self._chunk = self._open_chunk()

    def position(self) -> Position:
        """Return how far the log source is stored; buffered lines do not count."""
        for chunk in reversed(self._archive.chunks(self.source.id)):
            if position := _last_position(tiering.local_path(self._archive, chunk.file), chunk):
                return position
        return Position()

    def write(self, raw: bytes) -> None:
        """Buffer one line, its newline included."""
        with self._lock:
            self._buffer.append(raw)
            self._buffered_bytes += len(raw)
            full = self._buffered_bytes >= BUFFER_BYTES
        if full:
            self.flush()

    def flush(self) -> None:
        """Store the buffer; on an error it is kept, and the error is raised."""
        with self._lock:
            if self._buffer:
                self._store(b"".join(self._buffer))
                self._buffer, self._buffered_bytes = [], 0
            if self._chunk and self._chunk.raw_bytes >= CHUNK_BYTES:
                self._seal(self._chunk)
                self._chunk = None

    def discard(self) -> None:
        """Discard the buffer: its lines will be read from the engine again."""
        with self._lock:
            self._buffer, self._buffered_bytes = [], 0

    def end(self) -> None:
        """Store the buffer and seal the chunk; the log source has ended."""
        self.flush()
        with self._lock:
            if self._chunk is not None:
                self._seal(self._chunk)
                self._chunk = None
        self._archive.end_source(self.source)

    def add_gap(self, first_ns: int, last_ns: int, reason: str) -> None:
        """Store that lines of this log source are missing."""
        self._archive.add_gap(self.source.key, make_gap(self.source, first_ns, last_ns, reason))

    # -- storing ----------------------------------------------------------------------------------
    def _open_chunk(self) -> Chunk | None:
        """Return the source's open chunk, truncated to its intact part."""
        stored = self._archive.chunks(self.source.id)
        if not stored or stored[-1].sealed:
            return None
        chunk = stored[-1]
        extent = chunks.intact_extent(self._archive.chunk_path(chunk.file), chunk.size)
        if extent.size == chunk.size:
            return chunk
        last_ns = self._last_ns(chunk, extent.size)
        # The engine may still have these lines; they are read again and stored.
        self.damaged_range = last_ns, chunk.last_ns
        chunk = msgspec.structs.replace(
            chunk, size=extent.size, lines=extent.lines, raw_bytes=extent.raw_bytes, last_ns=last_ns
        )
        return self._archive.put_chunk(self.source.key, chunk)

    def _last_ns(self, chunk: Chunk, size: int) -> int:
        path = self._archive.chunk_path(chunk.file)
        position = _last_position(path, msgspec.structs.replace(chunk, size=size))
        return cri.nanoseconds(position.stamp) if position else chunk.first_ns

    def _store(self, lines: bytes) -> None:
        chunk = self._chunk or self._new_chunk()
        path = self._archive.chunk_path(chunk.file)
        # The frame first, then its row: a crash in between leaves bytes that no row counts, and the next frame
        # overwrites them. The other order could register lines that were never written.
        with storage_errors(self._archive.directory):
            size = chunks.append(path, chunk.size, chunks.frame(lines))
        first_ns, last_ns = time_bounds(lines)
        ranks = parse_numbers(chunk.ranks) | set(self._parse_ranks(lines) if self._parse_ranks else ())
        chunk = msgspec.structs.replace(
            chunk,
            first_ns=chunk.first_ns if chunk.lines else first_ns,
            last_ns=max(chunk.last_ns, last_ns),
            lines=chunk.lines + lines.count(b"\n"),
            raw_bytes=chunk.raw_bytes + len(lines),
            size=size,
            ranks=format_numbers(ranks),
        )
        self._chunk = self._archive.put_chunk(self.source.key, chunk)

    def _new_chunk(self) -> Chunk:
        ranks = "" if self.source.rank is None else str(self.source.rank)
        return Chunk(
            id=0, source_id=self.source.id, file=self._archive.new_file(self.source.key), ranks=ranks
        )

    def _seal(self, chunk: Chunk) -> None:
        """Close a chunk, with its content on disk; one with many small frames is rewritten first."""
        path, key = self._archive.chunk_path(chunk.file), self.source.key
        with storage_errors(self._archive.directory):
            frames = chunks.count_frames(path, chunk.size)
            if frames * chunks.LARGE_BYTES <= max(chunk.raw_bytes, chunks.LARGE_BYTES):
                chunks.sync(path)
                self._archive.put_chunk(key, msgspec.structs.replace(chunk, sealed=True))
                return
        file = self._archive.new_file(key)
        with storage_errors(self._archive.directory):
            pieces = chunks.merge_frames(chunks.read(path, chunk.size))
            size = chunks.write(self._archive.chunk_path(file), pieces)
        self._archive.put_chunk(key, msgspec.structs.replace(chunk, file=file, size=size, sealed=True))
        # Only now: until the row names the new file, readers open the old one.
        with contextlib.suppress(OSError):
            os.unlink(path)


def make_gap(source: LogSource, first_ns: int, last_ns: int, reason: str) -> Gap:
    return Gap(
        first_ns=first_ns, last_ns=max(first_ns, last_ns), reason=reason, source_id=source.id,
        attempt=source.attempt, role=source.role, worker=source.worker, rank=source.rank,
    )  # fmt: skip


def time_bounds(lines: bytes) -> tuple[int, int]:
    """Return the times of the first and the last of some stored lines."""
    last = lines.rfind(b"\n", 0, len(lines) - 1) + 1
    first_ns = cri.nanoseconds(lines[:64].partition(b" ")[0])
    return first_ns, cri.nanoseconds(lines[last : last + 64].partition(b" ")[0]) or first_ns


def _last_position(path: str, chunk: Chunk) -> Position | None:
    """Return the last time stamp of a chunk and how many lines at its end have it."""
    # A stamp may be repeated across the last two frames, so both are needed.
    last_frame = previous_frame = b""
    with contextlib.suppress(chunks.CorruptChunk):
        for lines in chunks.read(path, chunk.size):
            previous_frame, last_frame = last_frame, lines
    if not last_frame:
        return None
    stamps = [line.partition(b" ")[0] for line in (previous_frame + last_frame).split(b"\n")[:-1]]
    last_stamp, repeated = next(groupby(reversed(stamps)))
    return Position(last_stamp, len([*repeated]))
