"""Read an archive: return what an engine would return, for jobs that were deleted.

Lines have the same types, queries, merge and filters as an engine's; a gap is reported where lines are
missing. Only chunks that can hold a matching line are opened. Writing is done in `archive` and `log_writer`.
"""

from __future__ import annotations

import io
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from mpijob import codec
from mpijob.history import account_store
from mpijob.history.archive import Archive, deleted_state
from mpijob.history.log_writer import DAMAGED, make_gap, time_bounds
from mpijob.history.records import Chunk, Fact, Gap, LogFormat, LogSource, Record, Transition, parse_numbers
from mpijob.history.retention import erase
from mpijob.history.storage import chunks, tiering
from mpijob.history.storage.s3 import ObjectStore
from mpijob.model import (
    Event,
    JobKey,
    JobRef,
    JobState,
    LogLine,
    LogQuery,
    MPIJob,
    Page,
    Role,
    Sample,
    Scope,
)
from mpijob.model.ref import invalid_continue_token
from mpijob.model.spec.selector import selects
from mpijob.model.status.accounts import Account, AccountQuery
from mpijob.model.status.records import Mark
from mpijob.observation.logs import cri, live_merge, pipeline, regex_literals

_JOB_COLUMNS = "namespace, uid, state, deleted, first_seen, last_seen"
# The largest value of a 64-bit column: a larger one in a token would fail in the database.
_MAX_SEQUENCE = 2**63 - 1
_Position = tuple[float, int]


class LineReader(Protocol):
    """Parses the stored lines of one log source into lines of the job."""

    def read(self, raw: bytes) -> Iterator[LogLine]:
        """Yield the lines that one stored line contains."""

    def flush(self) -> Iterator[LogLine]:
        """Yield lines that were started and not finished."""


ReaderFactory = Callable[[LogSource, JobState], LineReader]


class CriReader:
    """Parses the log files of the local engine."""

    def __init__(self, source: LogSource, state: JobState) -> None:
        self._source = source
        workers = [rank.worker for rank in state.ranks if rank.rank == source.rank]
        self._worker = workers[0] if source.worker is None and workers else source.worker

    def read(self, raw: bytes) -> Iterator[LogLine]:
        line, source = cri.parse(raw), self._source
        yield LogLine(
            line.time_ns,
            line.text,
            source.role,
            line.stream,
            self._worker,
            source.rank,
            source.attempt,
            line.partial,
            marks=() if line.newline or line.partial else (Mark.OPEN,),
        )

    def flush(self) -> Iterator[LogLine]:
        return iter(())


def open_archive(
    directory: str,
    reader_factory: ReaderFactory = CriReader,
    database: str = "",
    objects: ObjectStore | None = None,
) -> ArchiveReader | None:
    """Open the archive in a directory, or in a database beside it; return None if there is none."""
    if not database and not os.path.exists(os.path.join(directory, "history.db")):
        return None
    return ArchiveReader(Archive(directory, database=database, objects=objects), reader_factory)


class ArchiveReader:
    """Reads recorded jobs; a name means the newest job with that name."""

    def __init__(self, archive: Archive, reader_factory: ReaderFactory = CriReader) -> None:
        self._archive = archive
        self._reader_factory = reader_factory

    # -- jobs -------------------------------------------------------------------------------------
    def state(self, ref: JobRef) -> JobState | None:
        """Return the last state of a job, with the time when it was deleted or last seen; None if it is unknown."""
        row = self._find_row(ref)
        return None if row is None else _last_state(row)

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return the last state of each attempt."""
        row = self._find_row(ref)
        if row is None:
            return ()
        last = _last_state(row)
        earlier = (state for state in self._archive.attempts(_key(row)) if state.attempt < last.attempt)
        return (*(msgspec.structs.replace(state, deleted=last.deleted) for state in earlier), last)

    def record(self, ref: JobRef) -> Record | None:
        """Return everything recorded of a job except its lines and events."""
        row = self._find_row(ref)
        if row is None:
            return None
        key, (_, deleted, first_seen, last_seen) = _key(row), row[2:]
        moments = self._archive.read(
            "SELECT moment FROM moments WHERE namespace=? AND uid=? ORDER BY time", *key
        )
        facts = self._archive.read(
            "SELECT fact FROM facts WHERE namespace=? AND uid=? ORDER BY kind, name", *key
        )
        return Record(
            state=_last_state(row),
            deleted=deleted,
            first_seen=first_seen,
            last_seen=last_seen,
            moments=tuple(codec.decode(encoded, Transition) for (encoded,) in moments),
            facts=tuple(codec.decode(encoded, Fact) for (encoded,) in facts),
            gaps=self._archive.gaps(key),
        )

    def spec(self, ref: JobRef) -> MPIJob | None:
        """Return the job as it was submitted, if that was stored."""
        row = self._find_row(ref)
        return self._archive.spec(_key(row)) if row else None

    def list(self, scope: Scope) -> Page:
        """Return one page of deleted jobs, the last deleted first."""
        where, values = _where(scope)
        after = _parse_token(scope.after) if scope.after else None
        rows: Sequence[Any]
        # Owner, queue, labels and kind are in the encoded state, not in columns.
        if scope.owner or scope.queue or scope.selector or scope.kinds:
            matching = [row for row in self._deleted_rows(where, values) if _matches(_last_state(row), scope)]
            total, rows = len(matching), [row for row in matching if after is None or _position(row) < after]
        else:
            total = self._archive.read(f"SELECT count(*) FROM jobs WHERE {where}", *values)[0][0]
            rows = self._deleted_rows(where, values, after, scope.limit + 1)
        shown = rows[: scope.limit]
        items = tuple(msgspec.structs.replace(_last_state(row), ranks=()) for row in shown)
        next_token = "{!r}:{}".format(*_position(shown[-1])) if shown and len(rows) > len(shown) else ""
        return Page(items, next_token, total)

    def facts(self, ref: JobRef, kind: str) -> tuple[Fact, ...]:
        """Return the stored facts of one kind of a job."""
        row = self._find_row(ref)
        wanted = "SELECT fact FROM facts WHERE namespace=? AND uid=? AND kind=? ORDER BY name"
        rows = self._archive.read(wanted, *_key(row), kind) if row else []
        return tuple(codec.decode(encoded, Fact) for (encoded,) in rows)

    def _deleted_rows(
        self, where: str, values: Sequence[Any], after: _Position | None = None, limit: int | None = None
    ) -> Sequence[Any]:
        """Return the rows of deleted jobs in list order, after a position."""
        # A position instead of an offset: jobs deleted meanwhile do not shift the pages.
        if after is not None:
            where, values = f"{where} AND (deleted, seq) < (?, ?)", [*values, *after]
        limit_clause = "" if limit is None else f" LIMIT {limit}"
        return self._archive.read(
            f"SELECT {_JOB_COLUMNS}, seq FROM jobs WHERE {where} ORDER BY deleted DESC, seq DESC{limit_clause}",
            *values,
        )

    def events(self, ref: JobRef) -> tuple[Event, ...]:
        row = self._find_row(ref)
        query = "SELECT event FROM events WHERE namespace=? AND uid=? ORDER BY time"
        rows = self._archive.read(query, *_key(row)) if row else []
        events = (codec.decode(encoded, Event) for (encoded,) in rows)
        ordered = sorted(events, key=lambda event: (event.time, event.sequence))
        return tuple(
            msgspec.structs.replace(event, sequence=sequence) for sequence, event in enumerate(ordered, 1)
        )

    def unfinished_jobs(self) -> Iterator[JobState]:
        """Yield the last states of jobs that have not ended."""
        for (encoded,) in self._archive.read(
            "SELECT state FROM jobs WHERE ended IS NULL AND deleted IS NULL"
        ):
            yield codec.decode(encoded, JobState)

    def samples(self, ref: JobRef, since: float = 0.0) -> tuple[Sample, ...]:
        row = self._find_row(ref)
        rows = self._archive.read(
            "SELECT time, worker, cores, memory, attempt, gpus, gpu_memory, io_wait, network FROM samples"
            " WHERE namespace=? AND uid=? AND time>=? ORDER BY time, worker", *_key(row), since
        ) if row else []  # fmt: skip
        return tuple(Sample(*sample_row) for sample_row in rows)

    def accounts(self, query: AccountQuery) -> Iterator[Account]:
        """Yield the accounts of recorded jobs, newest first."""
        return account_store.find(self._archive, query)

    def delete_job(self, ref: JobRef) -> int:
        """Delete a job, or every job with this name. Return how many were deleted."""
        where, values = (
            ("namespace=? AND uid=?", (ref.namespace, ref.uid))
            if ref.uid
            else ("namespace=? AND name=?", (ref.namespace, ref.name))
        )
        # An account may have outlived its record.
        keys = self._archive.read(
            f"SELECT namespace, uid FROM jobs WHERE {where} UNION SELECT namespace, uid FROM accounts WHERE {where}",
            *values, *values,
        )  # fmt: skip
        erase(self._archive, (JobKey(*row) for row in keys))
        return len(keys)

    def _find_row(self, ref: JobRef) -> tuple[Any, ...] | None:
        if ref.uid:
            rows = self._archive.read(
                f"SELECT {_JOB_COLUMNS} FROM jobs WHERE namespace=? AND uid=?", *ref.key
            )
        else:
            rows = self._archive.read(
                f"SELECT {_JOB_COLUMNS} FROM jobs WHERE namespace=? AND name=? ORDER BY created DESC, seq DESC LIMIT 1",
                ref.namespace, ref.name,
            )  # fmt: skip
        return rows[0] if rows else None

    # -- log lines --------------------------------------------------------------------------------
    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        """Yield the matching lines in time order, with gaps where they are; lost attempts come first.

        A lost attempt is reported for every query: nobody knows whose lines it had.
        """
        state = self.state(ref)
        if state is None:
            return iter(())
        streams = [
            self._lines(source, state, query)
            for source in self._archive.sources(state.ref.key)
            if _may_match(source, query)
        ]
        lost = [
            _gap_line(gap)
            for gap in self._archive.gaps(state.ref.key)
            if not gap.source_id and query.attempt in (None, gap.attempt)
        ]
        return itertools.chain(lost, pipeline.select(live_merge.merged(streams), query))

    def _lines(self, source: LogSource, state: JobState, query: LogQuery) -> Iterator[LogLine]:
        reader = self._reader_factory(source, state)
        literal = _required_literal(source, query)
        for part in self._parts(source, query):
            if isinstance(part, Gap):
                yield _gap_line(part)
                continue
            for raw in regex_literals.lines_with(part, literal) if literal else io.BytesIO(part):
                yield from reader.read(raw)
        yield from reader.flush()

    def _parts(self, source: LogSource, query: LogQuery) -> Iterator[bytes | Gap]:
        """Yield blocks of lines, and the gaps between them."""
        gaps = deque(gap for gap in self._archive.gaps(source.key) if gap.source_id == source.id)
        for chunk in self._archive.chunks(source.id):
            while gaps and gaps[0].first_ns < chunk.first_ns:
                yield gaps.popleft()
            if _chunk_may_match(source, chunk, query):
                for part in self._chunk_parts(source, chunk):
                    yield from _with_gaps(part, gaps) if gaps and isinstance(part, bytes) else (part,)
        yield from gaps

    def _chunk_parts(self, source: LogSource, chunk: Chunk) -> Iterator[bytes | Gap]:
        yielded = 0
        try:
            for block in chunks.read(tiering.local_path(self._archive, chunk.file), chunk.size):
                yield block
                yielded += len(block)
        except chunks.CorruptChunk:
            if self._is_current(chunk):
                yield make_gap(source, chunk.first_ns, chunk.last_ns, DAMAGED)
            else:
                # It was sealed while it was read (`log_writer`): the row names another file now.
                yield from self._reread(source, chunk, yielded)
                yield from self._reread(source, chunk, yielded)

    def _is_current(self, chunk: Chunk) -> bool:
        rows = self._archive.read("SELECT file FROM chunks WHERE id=?", chunk.id)
        return bool(rows) and rows[0][0] == chunk.file

    def _reread(self, source: LogSource, chunk: Chunk, yielded: int) -> Iterator[bytes | Gap]:
        """Yield the content of a chunk's new file that follows what was yielded already."""
        for current in self._archive.chunks(source.id):
            for part in self._chunk_parts(source, current) if current.id == chunk.id else ():
                if isinstance(part, Gap):
                    yield part
                    continue
                if yielded < len(part):
                    yield part[yielded:]
                yielded = max(0, yielded - len(part))


def _may_match(source: LogSource, query: LogQuery) -> bool:
    """Exclude sources that cannot hold a matching line; a launcher's log on a cluster holds its ranks' lines."""
    if query.attempt is not None and source.attempt != query.attempt:
        return False
    roles = (
        {source.role, Role.RANK}
        if source.format is LogFormat.POD and source.role is Role.LAUNCHER
        else {source.role}
    )
    if query.roles and not roles & set(query.roles):
        return False
    return not query.ranks or (Role.RANK in roles and (source.rank is None or source.rank in query.ranks))


def _required_literal(source: LogSource, query: LogQuery) -> bytes:
    """Return a literal that every matching line contains; b"" if context lines or parts of long lines count too."""
    single_lines = not (query.before or query.after or query.tidy or query.fold or query.level)
    if query.regex and single_lines and source.format is LogFormat.CRI:
        return regex_literals.required_literal(query.regex)
    return b""


def _chunk_may_match(source: LogSource, chunk: Chunk, query: LogQuery) -> bool:
    """Exclude chunks that cannot hold a matching line."""
    # A launcher's lines are split into ranks by what its log says earlier, so all of it is read.
    if source.format is LogFormat.POD and source.role is Role.LAUNCHER:
        return True
    if query.since is not None and chunk.last_ns < query.since * 1e9:
        return False
    if query.until is not None and chunk.first_ns > query.until * 1e9:
        return False
    return not query.ranks or not chunk.ranks or bool(parse_numbers(chunk.ranks) & set(query.ranks))


def _with_gaps(block: bytes, gaps: deque[Gap]) -> Iterator[bytes | Gap]:
    """Yield a block with the gaps inside it, each before the first line after it."""
    if gaps[0].first_ns >= time_bounds(block)[1]:
        yield block
        return
    lines: list[bytes] = []
    for line in io.BytesIO(block):
        while gaps and gaps[0].first_ns < cri.nanoseconds(line.partition(b" ")[0]):
            yield b"".join(lines)
            lines.clear()
            yield gaps.popleft()
        lines.append(line)
    yield b"".join(lines)


def _gap_line(gap: Gap) -> LogLine:
    role = gap.role or Role.LAUNCHER
    text = gap.format_message().encode()
    return LogLine(gap.first_ns, text, role, "stderr", gap.worker, gap.rank, gap.attempt, marks=(Mark.GAP,))


def _key(row: tuple[Any, ...]) -> JobKey:
    return JobKey(row[0], row[1])


def _last_state(row: tuple[Any, ...]) -> JobState:
    """Return the last state; for a job whose deletion was not observed, as of when it was last seen."""
    encoded, deleted, _, last_seen = row[2:6]
    state = codec.decode(encoded, JobState)
    if deleted is not None:
        return state
    message = f"last seen {state.phase.value}; its end was not recorded"
    return deleted_state(state, last_seen, message)


def _position(row: tuple[Any, ...]) -> _Position:
    return row[3], row[6]


def _parse_token(cursor: str) -> _Position:
    deleted, _, seq = cursor.partition(":")
    try:
        return float(deleted), min(max(int(seq), 0), _MAX_SEQUENCE)
    except ValueError:
        raise invalid_continue_token(cursor) from None


def _where(scope: Scope) -> tuple[str, list[Any]]:
    parts, values = ["deleted IS NOT NULL"], list[Any]()
    if scope.namespace:
        parts.append("namespace=?")
        values.append(scope.namespace)
    for column, accepted in (("name", scope.names), ("phase", scope.phases)):
        if accepted:
            parts.append(f"{column} IN ({','.join('?' * len(accepted))})")
            values += accepted
    for bound, comparison in ((scope.since, ">="), (scope.until, "<")):
        if bound is not None:
            parts.append(f"created{comparison}?")
            values.append(bound)
    # A substring match that is case-sensitive in both databases, which LIKE is not.
    if scope.text:
        parts.append("replace(name, ?, '') <> name")
        values.append(scope.text)
    return " AND ".join(parts), values


def _matches(state: JobState, scope: Scope) -> bool:
    return (
        (not scope.owner or state.owner == scope.owner)
        and (not scope.queue or state.queue == scope.queue)
        and (not scope.kinds or state.kind.lower() in scope.kinds)
        and selects(scope.selector, state.labels)
    )
