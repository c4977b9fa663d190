"""Import a whole job into an archive: the record and the log files of an engine that kept them itself.

The files are written first and registered together with the record in one transaction: a process killed
before that leaves the archive as it was, and files that `retention` removes. Importing a job again replaces
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from mpijob.errors import BackendError
from mpijob.history.archive import Archive
from mpijob.history.log_writer import CHUNK_BYTES, make_gap, time_bounds
from mpijob.history.records import Chunk, Fact, Gap, LogSource
from mpijob.history.storage import chunks, disk_reserve
from mpijob.history.storage.database import storage_errors
from mpijob.model import Event, JobKey, JobState, Sample

# Of each worker: more than any chart shows.
_MAX_SAMPLES = 2000
# Stored logs are at least this many times smaller than the originals.
_MIN_COMPRESSION = 4


class JobImport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an engine has of one job; `spec` and `plan` are already encoded.

    `gaps` are lines it lost, `attempts` the last states of earlier attempts.
    """

    state: JobState
    spec: bytes = b""
    plan: bytes = b""
    events: tuple[Event, ...] = ()
    samples: tuple[Sample, ...] = ()
    facts: tuple[Fact, ...] = ()
    gaps: tuple[Gap, ...] = ()
    attempts: tuple[JobState, ...] = ()


def import_job(
    archive: Archive, job_import: JobImport, logs: Iterable[tuple[LogSource, str]], now: float
) -> None:
    """Store a job with its log files, each with its source; a file that cannot be stored becomes a gap."""
    key = job_import.state.ref.key
    archive.delete_job(key)
    stored = [(source, _store_log(archive, key, path)) for source, path in logs]
    with archive.transaction():
        archive.put_job(
            job_import.state,
            now=now,
            spec=job_import.spec,
            plan=job_import.plan,
            events=job_import.events,
            facts=job_import.facts,
        )
        for attempt in job_import.attempts:
            archive.put_attempt(attempt)
        archive.add_samples(key, job_import.samples, limit=_MAX_SAMPLES)
        for gap in job_import.gaps:
            archive.add_gap(key, gap)
        for source, chunks_of_log in stored:
            _register(archive, archive.add_source(source), chunks_of_log)


class _StoredLog(NamedTuple):
    """The chunks that a log file became, and why they are incomplete."""

    chunks: list[Chunk]
    error: str = ""


def _register(archive: Archive, source: LogSource, stored: _StoredLog) -> None:
    ranks = "" if source.rank is None else str(source.rank)
    for chunk in stored.chunks:
        archive.put_chunk(source.key, msgspec.structs.replace(chunk, source_id=source.id, ranks=ranks))
    if stored.error:
        gap_ns = stored.chunks[-1].last_ns + 1 if stored.chunks else 0
        archive.add_gap(source.key, make_gap(source, gap_ns, gap_ns, stored.error))
    archive.end_source(source)


def _store_log(archive: Archive, key: JobKey, path: str) -> _StoredLog:
    written: list[Chunk] = []
    try:
        for lines in _blocks(path):
            if not disk_reserve.has_space(archive.directory, len(lines) // _MIN_COMPRESSION):
                raise BackendError("disk full")
            written.append(_write_chunk(archive, key, lines))
        return _StoredLog(written)
    # Deleting a job must work on a full disk, so a log that does not fit does not end the import.
    except (BackendError, OSError) as error:
        reason = f"the log could not be stored when the job was deleted: {error}"
        return _StoredLog(written, reason.splitlines()[0])


def _write_chunk(archive: Archive, key: JobKey, lines: bytes) -> Chunk:
    file = archive.new_file(key)
    pieces = (lines[start : start + chunks.FRAME_BYTES] for start in range(0, len(lines), chunks.FRAME_BYTES))
    with storage_errors(archive.directory):
        size = chunks.write(archive.chunk_path(file), _whole_lines(pieces), quick=True, sync=False)
    first_ns, last_ns = time_bounds(lines)
    return Chunk(
        id=0, source_id=0, file=file, first_ns=first_ns, last_ns=last_ns, lines=lines.count(b"\n"),
        raw_bytes=len(lines), size=size, sealed=True,
    )  # fmt: skip


def _blocks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from _whole_lines(iter(lambda: file.read(CHUNK_BYTES), b""))


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in blocks that end with a line."""
    incomplete = b""
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            yield incomplete + piece[:end]
            incomplete = piece[end:]
        else:
            incomplete += piece
    if incomplete:
        yield incomplete + b"\n"
