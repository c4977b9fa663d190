"""Writing one voice's lines into an archive, so that nothing is lost or stored twice whenever we are killed.

Lines are gathered for a moment, appended to the voice's open chunk as one frame, and counted in the database
then. Where the voice stands is always read from what is stored: whoever goes on after a crash asks `position`
and takes the engine's lines from there. A chunk that is full is written anew in larger frames and sealed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable

import msgspec

from mpijob.history.archive import Archive
from mpijob.history.records import Chunk, Gap, LogSource, Position, numbers, spans
from mpijob.history.storage import chunks, tiering
from mpijob.history.storage.database import telling
from mpijob.observation.logs import cri

BUFFER_BYTES = 256 << 10
CHUNK_BYTES = 4 << 20
TORN = "a part of the stored log was damaged"

Speakers = Callable[[bytes], Iterable[int]]


class Capture:
    """Takes the lines of one voice. Safe to be fed by one thread and flushed by another."""

    def __init__(self, archive: Archive, voice: LogSource, speakers: Speakers | None = None) -> None:
        self.voice = voice if voice.id else archive.voice(voice)
        self._archive = archive
        self._speakers = speakers
        self._held: list[bytes] = []
        self._size = 0
        self._lock = threading.Lock()
        self.torn: tuple[int, int] | None = None  # what was stored once and cannot be believed any more
        self._chunk = self._opened()

    def position(self) -> Position:
        """Return how far the voice is stored; lines that are still held are not."""
        for chunk in reversed(self._archive.chunks(self.voice.id)):
            if position := _last(tiering.local(self._archive, chunk.file), chunk):
                return position
        return Position()

    def take(self, raw: bytes) -> None:
        """Take one line, its newline included."""
        with self._lock:
            self._held.append(raw)
            self._size += len(raw)
            full = self._size >= BUFFER_BYTES
        if full:
            self.flush()

    def flush(self) -> None:
        """Store what is held; when that fails it stays held, and the error is the caller's."""
        with self._lock:
            if self._held:
                self._store(b"".join(self._held))
                self._held, self._size = [], 0
            if self._chunk and self._chunk.raw_bytes >= CHUNK_BYTES:
                self._seal(self._chunk)
                self._chunk = None

    def drop(self) -> None:
        """Let go of what is held: it will be read from the engine again."""
        with self._lock:
            self._held, self._size = [], 0

    def end(self) -> None:
        """Store what is held; the voice will say no more."""
        self.flush()
        with self._lock:
            if self._chunk is not None:
                self._seal(self._chunk)
                self._chunk = None
        self._archive.end_voice(self.voice)

    def gap(self, first_ns: int, last_ns: int, reason: str) -> None:
        """Write down that lines of this voice are missing."""
        self._archive.add_gap(self.voice.key, gap_of(self.voice, first_ns, last_ns, reason))

    # -- storing ----------------------------------------------------------------------------------
    def _opened(self) -> Chunk | None:
        """Return the voice's open chunk, cut back to what can be believed of it."""
        found = self._archive.chunks(self.voice.id)
        if not found or found[-1].sealed:
            return None
        chunk = found[-1]
        good = chunks.intact(self._archive.path(chunk.file), chunk.size)
        if good.size == chunk.size:
            return chunk
        last_ns = self._last_ns(chunk, good.size)
        self.torn = last_ns, chunk.last_ns  # what the engine still has of it is read again, and stored
        chunk = msgspec.structs.replace(
            chunk, size=good.size, lines=good.lines, raw_bytes=good.raw_bytes, last_ns=last_ns
        )
        return self._archive.put_chunk(self.voice.key, chunk)

    def _last_ns(self, chunk: Chunk, size: int) -> int:
        path = self._archive.path(chunk.file)
        last = _last(path, msgspec.structs.replace(chunk, size=size))
        return cri.nanoseconds(last.stamp) if last else chunk.first_ns

    def _store(self, lines: bytes) -> None:
        chunk = self._chunk or self._fresh()
        path = self._archive.path(chunk.file)
        with telling(self._archive.directory):
            size = chunks.append(path, chunk.size, chunks.frame(lines))
        first_ns, last_ns = bounds(lines)
        said = numbers(chunk.ranks) | set(self._speakers(lines) if self._speakers else ())
        chunk = msgspec.structs.replace(
            chunk,
            first_ns=chunk.first_ns if chunk.lines else first_ns,
            last_ns=max(chunk.last_ns, last_ns),
            lines=chunk.lines + lines.count(b"\n"),
            raw_bytes=chunk.raw_bytes + len(lines),
            size=size,
            ranks=spans(said),
        )
        self._chunk = self._archive.put_chunk(self.voice.key, chunk)

    def _fresh(self) -> Chunk:
        ranks = "" if self.voice.rank is None else str(self.voice.rank)
        return Chunk(id=0, voice=self.voice.id, file=self._archive.new_file(self.voice.key), ranks=ranks)

    def _seal(self, chunk: Chunk) -> None:
        """End a chunk; one of many small frames is written anew, and its old file goes when the new one counts."""
        path = self._archive.path(chunk.file)
        with telling(self._archive.directory):
            if chunks.count(path, chunk.size) * chunks.LARGE_BYTES <= max(
                chunk.raw_bytes, chunks.LARGE_BYTES
            ):
                chunks.sync(path)
                self._archive.put_chunk(self.voice.key, msgspec.structs.replace(chunk, sealed=True))
                return
        old, file = self._archive.path(chunk.file), self._archive.new_file(self.voice.key)
        with telling(self._archive.directory):
            pieces = chunks.joined(chunks.read(old, chunk.size))
            size = chunks.write(self._archive.path(file), pieces)
        self._archive.put_chunk(
            self.voice.key, msgspec.structs.replace(chunk, file=file, size=size, sealed=True)
        )
        with contextlib.suppress(OSError):
            os.unlink(old)


def gap_of(voice: LogSource, first_ns: int, last_ns: int, reason: str) -> Gap:
    """Return a gap in what one voice said."""
    return Gap(
        first_ns=first_ns, last_ns=max(first_ns, last_ns), reason=reason, voice=voice.id,
        attempt=voice.attempt, role=voice.role, worker=voice.worker, rank=voice.rank,
    )  # fmt: skip


def bounds(lines: bytes) -> tuple[int, int]:
    """Return the times of the first and the last of some stored lines."""
    last = lines.rfind(b"\n", 0, len(lines) - 1) + 1
    first_ns = cri.nanoseconds(lines[:64].partition(b" ")[0])
    return first_ns, cri.nanoseconds(lines[last : last + 64].partition(b" ")[0]) or first_ns


def _last(path: str, chunk: Chunk) -> Position | None:
    """Return the last stamp in a chunk and how many lines at its end carry it."""
    tail = before = b""
    with contextlib.suppress(chunks.CorruptChunk):
        for lines in chunks.read(path, chunk.size):
            before, tail = tail, lines
    if not tail:
        return None
    stamps = [line.partition(b" ")[0] for line in (before + tail).split(b"\n")[:-1]]
    repeats = 0
    for stamp in reversed(stamps):
        if stamp != stamps[-1]:
            break
        repeats += 1
    return Position(stamps[-1], repeats)
