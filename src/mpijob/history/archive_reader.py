"""Reading an archive: what an engine would answer, for jobs that are gone.

Lines come as the same values, by the same query, through the same merge and filters as an engine's; a part
that is missing is told where it is missing. Only chunks that can hold a wanted line are opened.
"""

from __future__ import annotations

import io
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from mpijob.history import account_store
from mpijob.history.archive import Archive, decoded, gone
from mpijob.history.log_writer import TORN, bounds, gap_of
from mpijob.history.records import Chunk, Fact, Form, Gap, LogSource, Moment, Record, numbers
from mpijob.history.retention import erase
from mpijob.history.storage import chunks, tiering
from mpijob.history.storage.s3 import Objects
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
from mpijob.model.ref import no_place
from mpijob.model.spec.selector import selects
from mpijob.model.status.accounts import Account, AccountQuery
from mpijob.model.status.records import Mark
from mpijob.observation.logs import cri, live_merge, pipeline, regex_literals

_JOB = "namespace, uid, state, deleted, first_seen, last_seen"
_LAST = 2**63 - 1  # no row has a larger number
_Place = tuple[float, int]


class LineReader(Protocol):
    """Turns the stored lines of one voice into lines of the job."""

    def read(self, raw: bytes) -> Iterator[LogLine]:
        """Yield what one stored line holds."""

    def rest(self) -> Iterator[LogLine]:
        """Yield what was begun and never ended."""


Readers = Callable[[LogSource, JobState], LineReader]


class CriReader:
    """Reads the lines of the local engine's files."""

    def __init__(self, voice: LogSource, state: JobState) -> None:
        self._voice = voice
        found = [rank.worker for rank in state.ranks if rank.rank == voice.rank]
        self._worker = found[0] if voice.worker is None and found else voice.worker

    def read(self, raw: bytes) -> Iterator[LogLine]:
        """Yield the one line."""
        line, voice = cri.parse(raw), self._voice
        yield LogLine(
            line.time_ns,
            line.text,
            voice.role,
            line.stream,
            self._worker,
            voice.rank,
            voice.attempt,
            line.partial,
            marks=() if line.newline or line.partial else (Mark.OPEN,),
        )

    def rest(self) -> Iterator[LogLine]:
        """Nothing is held back."""
        return iter(())


def past(
    directory: str, readers: Readers = CriReader, database: str = "", objects: Objects | None = None
) -> ArchiveReader | None:
    """Return the past that a directory, or a database beside it, holds; None where there is none."""
    if not database and not os.path.exists(os.path.join(directory, "history.db")):
        return None
    return ArchiveReader(Archive(directory, database=database, objects=objects), readers)


class ArchiveReader:
    """What is remembered of jobs; by name, of the newest job that had it."""

    def __init__(self, archive: Archive, readers: Readers = CriReader) -> None:
        self._archive = archive
        self._readers = readers

    # -- jobs -------------------------------------------------------------------------------------
    def state(self, ref: JobRef) -> JobState | None:
        """Return where a job stood last, with the time when it was deleted or last seen; None for an unknown one."""
        row = self._row(ref)
        return None if row is None else _as_gone(row)

    def attempts(self, ref: JobRef) -> tuple[JobState, ...]:
        """Return a job as each of its attempts ended, the last one as it stood last."""
        row = self._row(ref)
        if row is None:
            return ()
        last = _as_gone(row)
        earlier = (one for one in self._archive.attempts(_key(row)) if one.attempt < last.attempt)
        return (*(msgspec.structs.replace(one, deleted=last.deleted) for one in earlier), last)

    def record(self, ref: JobRef) -> Record | None:
        """Return all that is remembered of a job but its lines and events."""
        row = self._row(ref)
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
            state=_as_gone(row),
            deleted=deleted,
            first_seen=first_seen,
            last_seen=last_seen,
            moments=tuple(decoded(Moment, blob) for (blob,) in moments),
            facts=tuple(decoded(Fact, blob) for (blob,) in facts),
            gaps=self._archive.gaps(key),
        )

    def spec(self, ref: JobRef) -> MPIJob | None:
        """Return what was asked for, if that was written down."""
        row = self._row(ref)
        return self._archive.spec(_key(row)) if row else None

    def list(self, scope: Scope) -> Page:
        """Return one page of the jobs that were deleted, the last one deleted first."""
        where, values = _condition(scope)
        after = _place_of(scope.after) if scope.after else None
        rows: Sequence[Any]
        if scope.owner or scope.queue or scope.selector or scope.kinds:  # only the states tell them
            every = [row for row in self._deleted(where, values) if _chosen(_as_gone(row), scope)]
            total, rows = len(every), [row for row in every if after is None or _place(row) < after]
        else:
            total = self._archive.read(f"SELECT count(*) FROM jobs WHERE {where}", *values)[0][0]
            rows = self._deleted(where, values, after, scope.limit + 1)
        kept = rows[: scope.limit]
        items = tuple(msgspec.structs.replace(_as_gone(row), ranks=()) for row in kept)
        more = "{!r}:{}".format(*_place(kept[-1])) if kept and len(rows) > len(kept) else ""
        return Page(items, more, total)

    def _deleted(
        self, where: str, values: Sequence[Any], after: _Place | None = None, most: int | None = None
    ) -> Sequence[Any]:
        """Return the rows of deleted jobs in the order of the list, those behind a place alone."""
        if after is not None:
            where, values = f"{where} AND (deleted, seq) < (?, ?)", [*values, *after]
        end = "" if most is None else f" LIMIT {most}"
        return self._archive.read(
            f"SELECT {_JOB}, seq FROM jobs WHERE {where} ORDER BY deleted DESC, seq DESC{end}", *values
        )

    def events(self, ref: JobRef) -> tuple[Event, ...]:
        """Return what happened to a job, in order."""
        row = self._row(ref)
        wanted = "SELECT event FROM events WHERE namespace=? AND uid=? ORDER BY time"
        rows = self._archive.read(wanted, *_key(row)) if row else []
        found = sorted(
            (decoded(Event, blob) for (blob,) in rows), key=lambda event: (event.time, event.sequence)
        )
        return tuple(msgspec.structs.replace(event, sequence=place) for place, event in enumerate(found, 1))

    def going(self) -> Iterator[JobState]:
        """Yield the last known states of jobs that have not ended."""
        for (blob,) in self._archive.read("SELECT state FROM jobs WHERE ended IS NULL AND deleted IS NULL"):
            yield decoded(JobState, blob)

    def samples(self, ref: JobRef, since: float = 0.0) -> tuple[Sample, ...]:
        """Return the usage that was measured."""
        row = self._row(ref)
        rows = self._archive.read(
            "SELECT time, worker, cores, memory, attempt, gpus, gpu_memory, io_wait, network FROM samples"
            " WHERE namespace=? AND uid=? AND time>=? ORDER BY time, worker", *_key(row), since
        ) if row else []  # fmt: skip
        return tuple(Sample(*one) for one in rows)

    def accounts(self, query: AccountQuery) -> Iterator[Account]:
        """Yield the accounts of recorded jobs, newest first."""
        return account_store.find(self._archive, query)

    def forget(self, ref: JobRef) -> int:
        """Erase a job; by name, every job that had the name. Return how many there were."""
        where, values = (
            ("namespace=? AND uid=?", (ref.namespace, ref.uid))
            if ref.uid
            else ("namespace=? AND name=?", (ref.namespace, ref.name))
        )
        found = self._archive.read(
            f"SELECT namespace, uid FROM jobs WHERE {where} UNION SELECT namespace, uid FROM accounts WHERE {where}",
            *values, *values,
        )  # fmt: skip
        erase(self._archive, (JobKey(*row) for row in found))
        return len(found)

    def _row(self, ref: JobRef) -> tuple[Any, ...] | None:
        if ref.uid:
            rows = self._archive.read(f"SELECT {_JOB} FROM jobs WHERE namespace=? AND uid=?", *ref.key)
        else:
            rows = self._archive.read(
                f"SELECT {_JOB} FROM jobs WHERE namespace=? AND name=? ORDER BY created DESC, seq DESC LIMIT 1",
                ref.namespace, ref.name,
            )  # fmt: skip
        return rows[0] if rows else None

    # -- lines ------------------------------------------------------------------------------------
    def logs(self, ref: JobRef, query: LogQuery) -> Iterator[LogLine]:
        """Yield the wanted lines in time order, with the gaps where they are; before them whole attempts that are gone.

        These are told whichever lines are wanted: nobody knows whose they were.
        """
        state = self.state(ref)
        if state is None:
            return iter(())
        streams = [
            self._lines(voice, state, query)
            for voice in self._archive.voices(state.ref.key)
            if _wanted(voice, query)
        ]
        lost = [
            _told(gap)
            for gap in self._archive.gaps(state.ref.key)
            if not gap.voice and query.attempt in (None, gap.attempt)
        ]
        return itertools.chain(lost, pipeline.select(live_merge.merged(streams), query))

    def _lines(self, voice: LogSource, state: JobState, query: LogQuery) -> Iterator[LogLine]:
        reader = self._readers(voice, state)
        letters = _worth(voice, query)
        for part in self._parts(voice, query):
            if isinstance(part, Gap):
                yield _told(part)
                continue
            for raw in regex_literals.lines_with(part, letters) if letters else io.BytesIO(part):
                yield from reader.read(raw)
        yield from reader.rest()

    def raw(self, voice: LogSource, query: LogQuery | None = None) -> Iterator[bytes]:
        """Yield the stored lines of one voice, each with its newline, as the engine gave them."""
        for block in self.blocks(voice, query):
            yield from io.BytesIO(block)

    def blocks(self, voice: LogSource, query: LogQuery | None = None) -> Iterator[bytes]:
        """Yield the same lines many at a time, each block ending with a line: for whoever sorts or searches in bulk."""
        for part in self._parts(voice, query):
            yield _as_line(voice, part) if isinstance(part, Gap) else part

    def _parts(self, voice: LogSource, query: LogQuery | None) -> Iterator[bytes | Gap]:
        """Yield blocks of lines, and the gaps where they are."""
        gaps = deque(gap for gap in self._archive.gaps(voice.key) if gap.voice == voice.id)
        for chunk in self._archive.chunks(voice.id):
            while gaps and gaps[0].first_ns < chunk.first_ns:
                yield gaps.popleft()
            if query is None or _may_hold(voice, chunk, query):
                for part in self._chunk(voice, chunk):
                    yield from _with_gaps(part, gaps) if gaps and isinstance(part, bytes) else (part,)
        yield from gaps

    def _chunk(self, voice: LogSource, chunk: Chunk) -> Iterator[bytes | Gap]:
        told = 0
        try:
            for block in chunks.read(tiering.local(self._archive, chunk.file), chunk.size):
                yield block
                told += len(block)
        except chunks.CorruptChunk:
            if self._still(chunk):
                yield gap_of(voice, chunk.first_ns, chunk.last_ns, TORN)
            else:  # it was sealed, or made way, while we read: look at what is there now
                yield from self._anew(voice, chunk, told)

    def _still(self, chunk: Chunk) -> bool:
        rows = self._archive.read("SELECT file FROM chunks WHERE id=?", chunk.id)
        return bool(rows) and rows[0][0] == chunk.file

    def _anew(self, voice: LogSource, chunk: Chunk, told: int) -> Iterator[bytes | Gap]:
        """Yield what a chunk that has another file now holds behind what was told of it."""
        for one in self._archive.chunks(voice.id):
            for part in self._chunk(voice, one) if one.id == chunk.id else ():
                if isinstance(part, Gap):
                    yield part
                    continue
                if told < len(part):
                    yield part[told:]
                told = max(0, told - len(part))


def _wanted(voice: LogSource, query: LogQuery) -> bool:
    """Leave out voices that cannot hold a wanted line; a launcher's log on a cluster holds its ranks' lines."""
    if query.attempt is not None and voice.attempt != query.attempt:
        return False
    roles = (
        {voice.role, Role.RANK} if voice.form is Form.POD and voice.role is Role.LAUNCHER else {voice.role}
    )
    if query.roles and not roles & set(query.roles):
        return False
    return not query.ranks or (Role.RANK in roles and (voice.rank is None or voice.rank in query.ranks))


def _worth(voice: LogSource, query: LogQuery) -> bytes:
    """Return what a line must hold to be worth a look; b"" where lines around it, or pieces of long ones, count too."""
    alone = not (query.before or query.after or query.tidy or query.fold or query.level)
    return regex_literals.needed(query.regex) if query.regex and alone and voice.form is Form.CRI else b""


def _may_hold(voice: LogSource, chunk: Chunk, query: LogQuery) -> bool:
    """Leave out chunks that cannot hold a wanted line; of a launcher all are read, for it explains itself."""
    if voice.form is Form.POD and voice.role is Role.LAUNCHER:
        return True
    if query.since is not None and chunk.last_ns < query.since * 1e9:
        return False
    if query.until is not None and chunk.first_ns > query.until * 1e9:
        return False
    return not query.ranks or not chunk.ranks or bool(numbers(chunk.ranks) & set(query.ranks))


def _with_gaps(block: bytes, gaps: deque[Gap]) -> Iterator[bytes | Gap]:
    """Yield a block with the gaps that lie in it, each before the first line behind it."""
    if gaps[0].first_ns >= bounds(block)[1]:
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


def _as_line(voice: LogSource, gap: Gap) -> bytes:
    """Return a gap as a stored line of the voice that it is in."""
    line = cri.format_line(gap.first_ns, "stderr", gap.sentence().encode(), False)
    if voice.form is Form.CRI:
        return line
    stamp, _, _, text = line.split(b" ", 3)
    return stamp + b" " + text


def _told(gap: Gap) -> LogLine:
    role = gap.role or Role.LAUNCHER
    text = gap.sentence().encode()
    return LogLine(gap.first_ns, text, role, "stderr", gap.worker, gap.rank, gap.attempt, marks=(Mark.GAP,))


def _key(row: tuple[Any, ...]) -> JobKey:
    return JobKey(row[0], row[1])


def _as_gone(row: tuple[Any, ...]) -> JobState:
    """Return the last state; of a job that nobody saw deleted, when it was last seen."""
    blob, deleted, _, last_seen = row[2:6]
    state = decoded(JobState, blob)
    if deleted is not None:
        return state
    why = f"the job was last seen {state.phase.value}; what became of it was not recorded"
    return gone(state, last_seen, why)


def _place(row: tuple[Any, ...]) -> _Place:
    """Return where a row stands in the list of deleted jobs."""
    return row[3], row[6]


def _place_of(cursor: str) -> _Place:
    deleted, _, seq = cursor.partition(":")
    try:
        return float(deleted), min(max(int(seq), 0), _LAST)
    except ValueError:
        raise no_place(cursor) from None


def _condition(scope: Scope) -> tuple[str, list[Any]]:
    parts, values = ["deleted IS NOT NULL"], list[Any]()
    if scope.namespace:
        parts.append("namespace=?")
        values.append(scope.namespace)
    for column, several in (("name", scope.names), ("phase", scope.phases)):
        if several:
            parts.append(f"{column} IN ({','.join('?' * len(several))})")
            values += several
    for bound, sign in ((scope.since, ">="), (scope.until, "<")):
        if bound is not None:
            parts.append(f"created{sign}?")
            values.append(bound)
    if scope.text:  # a part of the name; in words that both databases know, and that tell letters apart
        parts.append("replace(name, ?, '') <> name")
        values.append(scope.text)
    return " AND ".join(parts), values


def _chosen(state: JobState, scope: Scope) -> bool:
    return (
        (not scope.owner or state.owner == scope.owner)
        and (not scope.queue or state.queue == scope.queue)
        and (not scope.kinds or state.kind.lower() in scope.kinds)
        and selects(scope.selector, state.labels)
    )
