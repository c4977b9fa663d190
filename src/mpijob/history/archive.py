"""An archive: the directory in which the record of jobs is written down, and the only door to its database.

DIRECTORY/history.db              jobs, where they stood over time, events, facts, samples, the index of logs
DIRECTORY/logs/NAMESPACE/UID/*    compressed chunks of lines (see `chunks`, `layout`)
DIRECTORY/recorder.lock           held by the recorder that writes here

A job is identified by its namespace and uid (`JobKey`), in every table and in the names of files: what is recorded in
one namespace never touches another.

Everything is closed to other users. Every change is one transaction; what a killed process leaves behind is
found by the next (`log_writer` for open chunks, `retention` for files that nobody knows).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mpijob import codec
from mpijob.errors import Conflict
from mpijob.history import account_store
from mpijob.history.account_store import Connection
from mpijob.history.records import Chunk, Fact, Form, Gap, LogSource, Moment
from mpijob.history.storage import layout, tiering
from mpijob.history.storage.database import open_database, telling
from mpijob.history.storage.schema import RECORD_TABLES, TABLES
from mpijob.model import Event, JobKey, JobState, MPIJob, Phase, Role, Sample

if TYPE_CHECKING:
    from mpijob.history.storage.s3 import Objects

_encode = msgspec.json.encode
_VOICE = "namespace, uid, attempt, role, worker, rank, source, origin, form, family, tagged, id, ended"
_CHUNK = "id, voice, file, first_ns, last_ns, lines, raw_bytes, size, ranks, sealed"
V = TypeVar("V")


def decoded(kind: type[V], data: bytes) -> V:
    """Return a stored value."""
    return codec.decode(data, kind)


class Archive:
    """An open archive; several threads may use it when it is `shared`."""

    def __init__(
        self, directory: str, *, shared: bool = False, database: str = "", objects: Objects | None = None
    ) -> None:
        self.directory = directory
        self.database = database
        self.objects = objects
        self._lock = threading.RLock()
        self._depth = 0
        with telling(directory):
            os.makedirs(directory, mode=0o700, exist_ok=True)
            os.makedirs(self.logs, mode=0o700, exist_ok=True)
            self._db: Any = open_database(
                os.path.join(directory, "history.db"), shared=shared, address=database
            )

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Hold the write lock; commit at the end, roll back on an error. One within another is part of it."""
        with self._lock, telling(self.directory):
            if self._depth:
                yield self._db
                return
            self._db.execute("BEGIN IMMEDIATE")
            self._depth = 1
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            else:
                self._db.execute("COMMIT")
            finally:
                self._depth = 0

    def read(self, sql: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        with self._lock, telling(self.directory):
            rows: list[Any] = self._db.execute(sql, values).fetchall()
            return rows

    # -- files ------------------------------------------------------------------------------------
    @property
    def logs(self) -> str:
        """Where the chunks are, by job."""
        return os.path.join(self.directory, "logs")

    def folder(self, key: JobKey) -> str:
        """Return the directory of one job's chunks."""
        return os.path.join(self.logs, layout.folder(key))

    def path(self, file: str) -> str:
        """Return where one chunk is."""
        return os.path.join(self.logs, layout.checked(file))

    def new_file(self, key: JobKey) -> str:
        """Return a name for a chunk that no other has, in a directory that is there."""
        file = layout.new_file(key)
        with telling(self.directory):
            layout.make_directory(os.path.dirname(self.path(file)))
        return file

    # -- jobs -------------------------------------------------------------------------------------
    def put(
        self,
        state: JobState,
        *,
        now: float,
        spec: bytes = b"",
        plan: bytes = b"",
        events: Iterable[Event] = (),
        facts: Iterable[Fact] = (),
        once: frozenset[str] = frozenset(),
    ) -> None:
        """Write down where a job stands and what was seen of it; what is known already stays as it is.

        Of events with a reason of `once` an attempt has one: the first that was told, however it is told later.
        """
        ref, key = state.ref, state.ref.key
        with self.transaction() as db:
            db.execute(
                "INSERT INTO jobs (namespace, uid, name, phase, created, ended, deleted, first_seen, last_seen,"
                " state, spec, plan) VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (namespace, uid) DO UPDATE SET"
                " phase=excluded.phase, ended=excluded.ended, deleted=excluded.deleted,"
                " last_seen=excluded.last_seen, state=excluded.state,"
                " spec=coalesce(excluded.spec, jobs.spec), plan=coalesce(excluded.plan, jobs.plan)",
                (*key, ref.name, state.phase.value, state.created,
                 _ended(state), state.deleted, now, now, _encode(state), spec or None, plan or None),
            )  # fmt: skip
            _note_moment(db, state, now)
            _add_events(db, key, events, once)
            self.add_facts(key, facts)
            account_store.settle(db, key, now)

    def put_attempt(self, state: JobState) -> None:
        """Write down how an attempt ended that is not the last one."""
        with self.transaction() as db:
            db.execute(
                "INSERT INTO attempts (namespace, uid, attempt, state) VALUES (?,?,?,?)"
                " ON CONFLICT (namespace, uid, attempt) DO UPDATE SET state=excluded.state",
                (*state.ref.key, state.attempt, _encode(state)),
            )

    def attempts(self, key: JobKey) -> list[JobState]:
        """Return how each attempt but the last ended, as far as that was written down."""
        rows = self.read("SELECT state FROM attempts WHERE namespace=? AND uid=? ORDER BY attempt", *key)
        return [decoded(JobState, blob) for (blob,) in rows]

    def add_events(self, key: JobKey, events: Iterable[Event]) -> None:
        """Write down what happened."""
        with self.transaction() as db:
            _add_events(db, key, events, frozenset())

    def add_facts(self, key: JobKey, facts: Iterable[Fact]) -> None:
        """Write down what was seen; what was seen of the same thing before gives way."""
        with self.transaction() as db:
            db.executemany(
                "INSERT INTO facts (namespace, uid, kind, name, fact) VALUES (?,?,?,?,?)"
                " ON CONFLICT (namespace, uid, kind, name) DO UPDATE SET fact=excluded.fact",
                [(*key, fact.kind, fact.name, _encode(fact)) for fact in facts],
            )

    def state(self, key: JobKey) -> JobState | None:
        """Return where a job stood last."""
        rows = self.read("SELECT state FROM jobs WHERE namespace=? AND uid=?", *key)
        return decoded(JobState, rows[0][0]) if rows else None

    def spec(self, key: JobKey) -> MPIJob | None:
        """Return what was asked for, if that was written down."""
        rows = self.read("SELECT spec FROM jobs WHERE namespace=? AND uid=?", *key)
        return decoded(MPIJob, rows[0][0]) if rows and rows[0][0] else None

    def mark_deleted(self, key: JobKey, when: float, why: str = "") -> None:
        """Write down that a job is gone; one whose end was not seen ended then, as far as anybody knows."""
        state = self.state(key)
        if state is None or state.deleted is not None:
            return
        self.put(gone(state, when, why), now=when, events=[farewell(when, state.attempt)])

    def add_samples(self, key: JobKey, samples: Iterable[Sample], *, most: int = 0) -> None:
        """Write down usage; what was told before is not counted again.

        Of each worker at most so many samples are kept, evenly; what was used counts all of them.
        """
        with self.transaction() as db:
            db.executemany(
                "INSERT INTO samples (namespace, uid, attempt, worker, time, cores, memory, gpus, gpu_memory, io_wait,"
                " network) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                [(*key, s.attempt, s.worker, s.time, s.cpu_cores, s.memory_bytes, s.gpus, s.gpu_memory_bytes,
                  s.io_wait, s.network)
                 for s in account_store.thinned(account_store.OF_RECORD.count(db, key, samples), most)],
            )  # fmt: skip
            if seen := db.execute("SELECT last_seen FROM jobs WHERE namespace=? AND uid=?", key).fetchone():
                account_store.settle(db, key, seen[0])

    def forget(self, key: JobKey, *, keep_account: bool = False) -> None:
        """Erase everything of a job: its files, then its rows, so that what was begun can be finished."""
        files = [file for (file,) in self.read("SELECT file FROM chunks WHERE namespace=? AND uid=?", *key)]
        with telling(self.directory):
            for file in files:
                tiering.remove(self, file)
            self.remove_folders(key, files)
        self.forget_rows(key, keep_account=keep_account)

    def remove_folders(self, key: JobKey, files: list[str]) -> None:
        """Remove the directories of a job whose files these were, with what a killed writer left in them."""
        for folder in layout.folders_of(key, files):
            layout.remove_directory(os.path.join(self.logs, folder), self.logs)

    def forget_rows(self, key: JobKey, *, keep_account: bool = False) -> None:
        """Erase the rows of a job, or all but its account."""
        with self.transaction() as db:
            for table in RECORD_TABLES if keep_account else TABLES:
                db.execute(f"DELETE FROM {table} WHERE namespace=? AND uid=?", key)

    # -- lines ------------------------------------------------------------------------------------
    def voice(self, voice: LogSource) -> LogSource:
        """Return a voice as the archive knows it, made known now if it was not."""
        with self.transaction() as db:
            db.execute(
                "INSERT INTO voices (namespace, uid, attempt, role, worker, rank, source, origin, form, family,"
                " tagged) VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
                (*voice.key, voice.attempt, voice.role.value, voice.worker, voice.rank, voice.source,
                 voice.origin, voice.form.value, voice.family, voice.tagged),
            )  # fmt: skip
            row = db.execute(
                f"SELECT {_VOICE} FROM voices"
                " WHERE namespace=? AND uid=? AND attempt=? AND source=? AND origin=?",
                (*voice.key, voice.attempt, voice.source, voice.origin),
            ).fetchone()
        return _voice(row)

    def voices(self, key: JobKey) -> list[LogSource]:
        """Return everybody who spoke in a job."""
        rows = self.read(
            f"SELECT {_VOICE} FROM voices WHERE namespace=? AND uid=? ORDER BY attempt, id", *key
        )
        return [_voice(row) for row in rows]

    def end_voice(self, voice: LogSource) -> None:
        """Write down that a voice will say no more."""
        with self.transaction() as db:
            db.execute("UPDATE voices SET ended=1 WHERE id=?", (voice.id,))

    def chunks(self, voice: int) -> list[Chunk]:
        """Return the chunks of one voice in order."""
        rows = self.read(f"SELECT {_CHUNK} FROM chunks WHERE voice=? ORDER BY id", voice)
        return [_chunk(row) for row in rows]

    def put_chunk(self, key: JobKey, chunk: Chunk) -> Chunk:
        """Write down a chunk: a new one when it has no number yet."""
        values = (chunk.file, chunk.first_ns, chunk.last_ns, chunk.lines, chunk.raw_bytes, chunk.size,
                  chunk.ranks, chunk.sealed)  # fmt: skip
        with self.transaction() as db:
            if chunk.id:
                db.execute(
                    "UPDATE chunks SET file=?, first_ns=?, last_ns=?, lines=?, raw_bytes=?, size=?, ranks=?,"
                    " sealed=? WHERE id=?", (*values, chunk.id)
                )  # fmt: skip
                return chunk
            row = db.execute(
                "INSERT INTO chunks (voice, namespace, uid, file, first_ns, last_ns, lines, raw_bytes, size, ranks,"
                " sealed) VALUES (?,?,?,?,?,?,?,?,?,?,?)", (chunk.voice, *key, *values)
            )  # fmt: skip
        return msgspec.structs.replace(chunk, id=int(row.lastrowid or 0))

    def add_gap(self, key: JobKey, gap: Gap) -> None:
        """Write down what is missing; a gap that continues one for the same reason makes that one longer."""
        with self.transaction() as db:
            db.execute("DELETE FROM gaps WHERE namespace=? AND uid=? AND voice=? AND first_ns=? AND reason=?",
                       (*key, gap.voice, gap.first_ns, gap.reason))  # fmt: skip
            last = db.execute(
                "SELECT rowid, first_ns, last_ns FROM gaps WHERE namespace=? AND uid=? AND voice=? AND reason=?"
                " ORDER BY first_ns DESC LIMIT 1", (*key, gap.voice, gap.reason)
            ).fetchone()  # fmt: skip
            if last and gap.voice and last[1] <= gap.first_ns and not _between(db, gap, last[2]):
                gap = msgspec.structs.replace(gap, first_ns=last[1], last_ns=max(last[2], gap.last_ns))
                db.execute("DELETE FROM gaps WHERE rowid=?", (last[0],))
            db.execute(
                "INSERT INTO gaps (namespace, uid, voice, first_ns, last_ns, reason, gap) VALUES (?,?,?,?,?,?,?)",
                (*key, gap.voice, gap.first_ns, gap.last_ns, gap.reason, _encode(gap)),
            )

    def gaps(self, key: JobKey) -> tuple[Gap, ...]:
        """Return what is missing of a job, in order."""
        rows = self.read("SELECT gap FROM gaps WHERE namespace=? AND uid=? ORDER BY first_ns", *key)
        return tuple(decoded(Gap, row[0]) for row in rows)

    # -- one writer -------------------------------------------------------------------------------
    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Be the only recorder of this directory; raise Conflict when there is one already."""
        path = os.path.join(self.directory, "recorder.lock")
        with telling(self.directory):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(fd, 32, 0).decode().strip()
                raise Conflict(
                    f"another recorder (process {pid or 'unknown'}) writes to {self.directory}",
                    hint="one is enough; give this one a directory of its own with MPIJOB_HISTORY",
                ) from None
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(fd)


def gone(state: JobState, when: float, why: str = "") -> JobState:
    """Return the last state of a job that is no more."""
    if state.phase.final:
        return msgspec.structs.replace(state, deleted=when)
    return msgspec.structs.replace(
        state,
        phase=Phase.CANCELLED,
        reason="Deleted",
        message=why or f"the job was deleted while it was {state.phase.value}",
        waiting_for="",
        released=state.finished,  # of one that was suspended
        finished=when,
        deleted=when,
    )


def farewell(when: float, attempt: int) -> Event:
    """Return the last thing that happens to a job."""
    return Event(when, "Deleted", "deleted; what is kept is its record", attempt=attempt)


def _add_events(db: Connection, key: JobKey, events: Iterable[Event], once: frozenset[str]) -> None:
    known = "SELECT event FROM events WHERE namespace=? AND uid=? AND reason=?"
    told = {
        (event.reason, event.attempt)
        for reason in once
        for (blob,) in db.execute(known, (*key, reason))
        for event in [decoded(Event, blob)]
    }
    new = [event for event in events if (event.reason, event.attempt) not in told]
    db.executemany(
        "INSERT INTO events (namespace, uid, time, reason, message, event) VALUES (?,?,?,?,?,?)"
        " ON CONFLICT DO NOTHING",
        [(*key, event.time, event.reason, event.message, _encode(event)) for event in new],
    )


def _ended(state: JobState) -> float | None:
    return (state.finished if state.phase.final else None) or state.deleted


def _note_moment(db: Connection, state: JobState, now: float) -> None:
    """Write down where the job stands, if that is another place than before."""
    moment = Moment(now, state.phase.value, state.reason, state.message, state.attempt, state.aggregate)
    row = db.execute(
        "SELECT moment FROM moments WHERE namespace=? AND uid=? ORDER BY time DESC LIMIT 1", state.ref.key
    ).fetchone()
    if row is None or msgspec.structs.replace(decoded(Moment, row[0]), time=now) != moment:
        values = (*state.ref.key, now, _encode(moment))
        db.execute("INSERT INTO moments (namespace, uid, time, moment) VALUES (?,?,?,?)", values)


def _between(db: Connection, gap: Gap, after_ns: int) -> bool:
    """Whether lines are there between an earlier gap of a voice and this one."""
    sql = "SELECT 1 FROM chunks WHERE voice=? AND lines>0 AND first_ns>=? AND last_ns<=? LIMIT 1"
    return db.execute(sql, (gap.voice, after_ns, gap.first_ns)).fetchone() is not None


def _voice(row: tuple[Any, ...]) -> LogSource:
    namespace, uid, attempt, role, worker, rank, source, origin, form, family, tagged, number, ended = row
    return LogSource(
        key=JobKey(namespace, uid), attempt=attempt, role=Role(role), worker=worker, rank=rank, source=source,
        origin=origin, form=Form(form), family=family, tagged=bool(tagged), id=number, ended=bool(ended),
    )  # fmt: skip


def _chunk(row: tuple[Any, ...]) -> Chunk:
    number, voice, file, first_ns, last_ns, lines, raw_bytes, size, ranks, sealed = row
    return Chunk(
        id=number, voice=voice, file=file, first_ns=first_ns, last_ns=last_ns, lines=lines,
        raw_bytes=raw_bytes, size=size, ranks=ranks, sealed=bool(sealed),
    )  # fmt: skip
