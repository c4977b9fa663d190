"""Taking a whole job into an archive at once: the record and the log files of an engine that kept them itself.

The files are written first and counted with the record in one transaction: a process killed before that
leaves the archive as it was, and files that `retention` finds. Taking the same job in again replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from mpijob.errors import BackendError
from mpijob.history.archive import Archive
from mpijob.history.log_writer import CHUNK_BYTES, bounds, gap_of
from mpijob.history.records import Chunk, Fact, Gap, LogSource
from mpijob.history.storage import chunks, disk_reserve
from mpijob.history.storage.database import telling
from mpijob.model import Event, JobKey, JobState, Sample

_MOST_SAMPLES = 2000  # of each worker: more than any screen shows


class JobImport(msgspec.Struct, frozen=True, kw_only=True):
    """All that an engine knows of one job; `spec` and `plan` are encoded already.

    `gaps` are what it has lost, `attempts` how the earlier ones ended.
    """

    state: JobState
    spec: bytes = b""
    plan: bytes = b""
    events: tuple[Event, ...] = ()
    samples: tuple[Sample, ...] = ()
    facts: tuple[Fact, ...] = ()
    gaps: tuple[Gap, ...] = ()
    attempts: tuple[JobState, ...] = ()


_PACKED = 4  # at least by so much are logs smaller when they are stored


def take_in(archive: Archive, whole: JobImport, logs: Iterable[tuple[LogSource, str]], now: float) -> None:
    """Write a job down with its log files, given by who speaks in them; a file that fails becomes a gap."""
    key = whole.state.ref.key
    archive.forget(key)
    stored = [(voice, _stored(archive, key, path)) for voice, path in logs]
    with archive.transaction():
        archive.put(whole.state, now=now, spec=whole.spec, plan=whole.plan, events=whole.events,
                    facts=whole.facts)  # fmt: skip
        for attempt in whole.attempts:
            archive.put_attempt(attempt)
        archive.add_samples(key, whole.samples, most=_MOST_SAMPLES)
        for gap in whole.gaps:
            archive.add_gap(key, gap)
        for voice, found in stored:
            _count(archive, archive.voice(voice), found)


class _Stored(NamedTuple):
    """The chunks that a log file became, and why they are not all of it."""

    chunks: list[Chunk]
    trouble: str = ""


def _count(archive: Archive, voice: LogSource, found: _Stored) -> None:
    ranks = "" if voice.rank is None else str(voice.rank)
    for chunk in found.chunks:
        archive.put_chunk(voice.key, msgspec.structs.replace(chunk, voice=voice.id, ranks=ranks))
    if found.trouble:
        at = found.chunks[-1].last_ns + 1 if found.chunks else 0
        archive.add_gap(voice.key, gap_of(voice, at, at, found.trouble))
    archive.end_voice(voice)


def _stored(archive: Archive, key: JobKey, path: str) -> _Stored:
    written: list[Chunk] = []
    try:
        for lines in _pieces(path):
            if not disk_reserve.has_room(archive.directory, len(lines) // _PACKED):
                raise BackendError("the disk is full")
            written.append(_chunk(archive, key, lines))
        return _Stored(written)
    except (BackendError, OSError) as error:
        why = f"the log could not be stored when the job was deleted: {error}"
        return _Stored(written, why.splitlines()[0])


def _chunk(archive: Archive, key: JobKey, lines: bytes) -> Chunk:
    file = archive.new_file(key)
    pieces = (lines[at : at + chunks.FRAME_BYTES] for at in range(0, len(lines), chunks.FRAME_BYTES))
    with telling(archive.directory):
        size = chunks.write(archive.path(file), _whole_lines(pieces), quick=True, sync=False)
    first_ns, last_ns = bounds(lines)
    return Chunk(
        id=0, voice=0, file=file, first_ns=first_ns, last_ns=last_ns, lines=lines.count(b"\n"),
        raw_bytes=len(lines), size=size, sealed=True,
    )  # fmt: skip


def _pieces(path: str) -> Iterator[bytes]:
    """Yield a file in pieces that end with a line; a last line without its newline gets one."""
    with open(path, "rb") as file:
        yield from _whole_lines(iter(lambda: file.read(CHUNK_BYTES), b""))


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            yield rest + piece[:end]
            rest = piece[end:]
        else:
            rest += piece
    if rest:
        yield rest + b"\n"
