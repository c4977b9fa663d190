"""An archive: the directory that holds the job history, and the only code that opens its database.

It stores what it is given; `log_writer` fills it with lines, `archive_reader` answers queries from it.

DIRECTORY/history.db              jobs, their states over time, events, facts, samples, the index of logs
DIRECTORY/logs/NAMESPACE/UID/*    compressed chunks of log lines (see `chunks`, `layout`)
DIRECTORY/recorder.lock           held by the recorder that writes here

A job is identified by its namespace and uid (`JobKey`) in every table and in the names of files, so what is
recorded in one namespace never touches another.

Other users have no access. Every change is one transaction; what a killed process leaves behind is cleaned up
by the next one (`log_writer` for open chunks, `retention` for files without a row).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.errors import Conflict
from mpijob.history import account_store
from mpijob.history.account_store import Connection
from mpijob.history.records import Chunk, Fact, Gap, LogFormat, LogSource, Transition
from mpijob.history.storage import layout, tiering
from mpijob.history.storage.database import open_database, storage_errors
from mpijob.history.storage.schema import RECORD_TABLES, TABLES
from mpijob.model import Event, JobKey, JobState, MPIJob, Phase, Role, Sample

if TYPE_CHECKING:
    from mpijob.history.storage.s3 import ObjectStore

_encode = msgspec.json.encode
_SOURCE_COLUMNS = (
    "namespace, uid, attempt, role, worker, rank, source, origin, form, family, tagged, id, ended"
)
_CHUNK_COLUMNS = "id, voice, file, first_ns, last_ns, lines, raw_bytes, size, ranks, sealed"


class Archive:
    """An open archive; several threads may use it when it is `shared`."""

    def __init__(
        self, directory: str, *, shared: bool = False, database: str = "", objects: ObjectStore | None = None
    ) -> None:
        self.directory = directory
        self.database = database
        self.objects = objects
        # Reentrant: `put_job` calls methods that open the same transaction again.
        self._lock = threading.RLock()
        self._nesting = 0
        with storage_errors(directory):
            os.makedirs(directory, mode=0o700, exist_ok=True)
            os.makedirs(self.logs, mode=0o700, exist_ok=True)
            self._db: Any = open_database(
                os.path.join(directory, "history.db"), shared=shared, address=database
            )

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Hold the write lock; commit at the end, roll back on an error. A nested transaction joins the outer one."""
        with self._lock, storage_errors(self.directory):
            if self._nesting:
                yield self._db
                return
            # The write lock at once: SQLite does not wait for a lock that is upgraded later, it fails.
            self._db.execute("BEGIN IMMEDIATE")
            self._nesting = 1
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            else:
                self._db.execute("COMMIT")
            finally:
                self._nesting = 0

    def read(self, sql: str, *values: Any) -> list[Any]:
        with self._lock, storage_errors(self.directory):
            rows: list[Any] = self._db.execute(sql, values).fetchall()
            return rows

    # -- files ------------------------------------------------------------------------------------
    @property
    def logs(self) -> str:
        """The directory of chunks, by job."""
        return os.path.join(self.directory, "logs")

    def job_directory(self, key: JobKey) -> str:
        return os.path.join(self.logs, layout.job_directory(key))

    def chunk_path(self, file: str) -> str:
        return os.path.join(self.logs, layout.safe_name(file))

    def new_file(self, key: JobKey) -> str:
        file = layout.new_file(key)
        with storage_errors(self.directory):
            layout.make_directory(os.path.dirname(self.chunk_path(file)))
        return file

    # -- jobs -------------------------------------------------------------------------------------
    def put_job(
        self,
        state: JobState,
        *,
        now: float,
        spec: bytes = b"",
        plan: bytes = b"",
        events: Iterable[Event] = (),
        facts: Iterable[Fact] = (),
        unique_reasons: frozenset[str] = frozenset(),
    ) -> None:
        """Store the state of a job and what was observed with it; stored events and documents stay.

        For a reason in `unique_reasons`, each attempt has one event: the first that was stored, whatever its later
        text.
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
                 _end_time(state), state.deleted, now, now, _encode(state), spec or None, plan or None),
            )  # fmt: skip
            _add_transition(db, state, now)
            _add_events(db, key, events, unique_reasons)
            self.add_facts(key, facts)
            account_store.update_account(db, key, now)

    def put_attempt(self, state: JobState) -> None:
        """Store the last state of an attempt that is not the job's last one."""
        with self.transaction() as db:
            db.execute(
                "INSERT INTO attempts (namespace, uid, attempt, state) VALUES (?,?,?,?)"
                " ON CONFLICT (namespace, uid, attempt) DO UPDATE SET state=excluded.state",
                (*state.ref.key, state.attempt, _encode(state)),
            )

    def attempts(self, key: JobKey) -> list[JobState]:
        """Return the stored last states of all attempts but the last."""
        rows = self.read("SELECT state FROM attempts WHERE namespace=? AND uid=? ORDER BY attempt", *key)
        return [codec.decode(encoded, JobState) for (encoded,) in rows]

    def add_events(self, key: JobKey, events: Iterable[Event]) -> None:
        with self.transaction() as db:
            _add_events(db, key, events, frozenset())

    def add_facts(self, key: JobKey, facts: Iterable[Fact]) -> None:
        """Store facts; a fact of the same kind and name replaces the earlier one."""
        with self.transaction() as db:
            db.executemany(
                "INSERT INTO facts (namespace, uid, kind, name, fact) VALUES (?,?,?,?,?)"
                " ON CONFLICT (namespace, uid, kind, name) DO UPDATE SET fact=excluded.fact",
                [(*key, fact.kind, fact.name, _encode(fact)) for fact in facts],
            )

    def state(self, key: JobKey) -> JobState | None:
        rows = self.read("SELECT state FROM jobs WHERE namespace=? AND uid=?", *key)
        return codec.decode(rows[0][0], JobState) if rows else None

    def spec(self, key: JobKey) -> MPIJob | None:
        """Return the job as it was submitted, if that was stored."""
        rows = self.read("SELECT spec FROM jobs WHERE namespace=? AND uid=?", *key)
        return codec.decode(rows[0][0], MPIJob) if rows and rows[0][0] else None

    def mark_deleted(self, key: JobKey, deleted_at: float, reason: str = "") -> None:
        """Store that a job was deleted; if its end was not observed, it ended at that time."""
        state = self.state(key)
        if state is None or state.deleted is not None:
            return
        self.put_job(
            deleted_state(state, deleted_at, reason),
            now=deleted_at,
            events=[deleted_event(deleted_at, state.attempt)],
        )

    def add_samples(self, key: JobKey, samples: Iterable[Sample], *, limit: int = 0) -> None:
        """Store usage samples; those stored before are not counted again.

        At most `limit` samples of each worker are kept, evenly over time; the tallies count all of them.
        """
        with self.transaction() as db:
            db.executemany(
                "INSERT INTO samples (namespace, uid, attempt, worker, time, cores, memory, gpus, gpu_memory, io_wait,"
                " network) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                [(*key, s.attempt, s.worker, s.time, s.cpu_cores, s.memory_bytes, s.gpus, s.gpu_memory_bytes,
                  s.io_wait, s.network)
                 for s in account_store.downsample(account_store.ARCHIVE_TALLIES.add_samples(db, key, samples), limit)],
            )  # fmt: skip
            # The account counts up to the last observation of the job, not up to this call.
            if last_seen := db.execute(
                "SELECT last_seen FROM jobs WHERE namespace=? AND uid=?", key
            ).fetchone():
                account_store.update_account(db, key, last_seen[0])

    def delete_job(self, key: JobKey, *, keep_account: bool = False) -> None:
        """Delete everything of a job: its files, then its rows, so that an interrupted deletion can be repeated."""
        files = [file for (file,) in self.read("SELECT file FROM chunks WHERE namespace=? AND uid=?", *key)]
        with storage_errors(self.directory):
            for file in files:
                tiering.remove(self, file)
            self.remove_job_directories(key, files)
        self.delete_rows(key, keep_account=keep_account)

    def remove_job_directories(self, key: JobKey, files: list[str]) -> None:
        """Remove the directories of a job that held these files, with what a killed writer left in them."""
        for folder in layout.job_directories(key, files):
            layout.remove_directory(os.path.join(self.logs, folder), self.logs)

    def delete_rows(self, key: JobKey, *, keep_account: bool = False) -> None:
        """Delete the rows of a job, or all but its account."""
        with self.transaction() as db:
            for table in RECORD_TABLES if keep_account else TABLES:
                db.execute(f"DELETE FROM {table} WHERE namespace=? AND uid=?", key)

    # -- log lines --------------------------------------------------------------------------------
    def add_source(self, source: LogSource) -> LogSource:
        """Return a log source with its id, registered now if it is new."""
        with self.transaction() as db:
            db.execute(
                "INSERT INTO voices (namespace, uid, attempt, role, worker, rank, source, origin, form, family,"
                " tagged) VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
                (*source.key, source.attempt, source.role.value, source.worker, source.rank, source.source,
                 source.origin, source.format.value, source.family, source.tagged),
            )  # fmt: skip
            row = db.execute(
                f"SELECT {_SOURCE_COLUMNS} FROM voices"
                " WHERE namespace=? AND uid=? AND attempt=? AND source=? AND origin=?",
                (*source.key, source.attempt, source.source, source.origin),
            ).fetchone()
        return _parse_source(row)

    def sources(self, key: JobKey) -> list[LogSource]:
        rows = self.read(
            f"SELECT {_SOURCE_COLUMNS} FROM voices WHERE namespace=? AND uid=? ORDER BY attempt, id", *key
        )
        return [_parse_source(row) for row in rows]

    def end_source(self, source: LogSource) -> None:
        with self.transaction() as db:
            db.execute("UPDATE voices SET ended=1 WHERE id=?", (source.id,))

    def chunks(self, source_id: int) -> list[Chunk]:
        """Return the chunks of one log source in order."""
        rows = self.read(f"SELECT {_CHUNK_COLUMNS} FROM chunks WHERE voice=? ORDER BY id", source_id)
        return [_parse_chunk(row) for row in rows]

    def put_chunk(self, key: JobKey, chunk: Chunk) -> Chunk:
        """Store a chunk; insert it when it has no id yet."""
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
                " sealed) VALUES (?,?,?,?,?,?,?,?,?,?,?)", (chunk.source_id, *key, *values)
            )  # fmt: skip
        return msgspec.structs.replace(chunk, id=int(row.lastrowid or 0))

    def add_gap(self, key: JobKey, gap: Gap) -> None:
        """Store a gap; one that continues a gap with the same reason extends it."""
        with self.transaction() as db:
            # A gap that is reported again replaces the earlier report.
            db.execute("DELETE FROM gaps WHERE namespace=? AND uid=? AND voice=? AND first_ns=? AND reason=?",
                       (*key, gap.source_id, gap.first_ns, gap.reason))  # fmt: skip
            last = db.execute(
                "SELECT rowid, first_ns, last_ns FROM gaps WHERE namespace=? AND uid=? AND voice=? AND reason=?"
                " ORDER BY first_ns DESC LIMIT 1", (*key, gap.source_id, gap.reason)
            ).fetchone()  # fmt: skip
            if (
                last
                and gap.source_id
                and last[1] <= gap.first_ns
                and not _has_lines_between(db, gap, last[2])
            ):
                gap = msgspec.structs.replace(gap, first_ns=last[1], last_ns=max(last[2], gap.last_ns))
                db.execute("DELETE FROM gaps WHERE rowid=?", (last[0],))
            db.execute(
                "INSERT INTO gaps (namespace, uid, voice, first_ns, last_ns, reason, gap) VALUES (?,?,?,?,?,?,?)",
                (*key, gap.source_id, gap.first_ns, gap.last_ns, gap.reason, _encode(gap)),
            )

    def gaps(self, key: JobKey) -> tuple[Gap, ...]:
        """Return the gaps in a job's record, in order."""
        rows = self.read("SELECT gap FROM gaps WHERE namespace=? AND uid=? ORDER BY first_ns", *key)
        return tuple(codec.decode(row[0], Gap) for row in rows)

    # -- lock -------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the recorder's lock on this directory; raise Conflict when another process has it."""
        path = os.path.join(self.directory, "recorder.lock")
        with storage_errors(self.directory):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # The kernel releases it with the process, however that ends; the file itself stays.
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(fd, 32, 0).decode().strip()
                raise Conflict(
                    f"another recorder (process {pid or 'unknown'}) writes to {self.directory}",
                    hint="run one recorder per directory; set MPIJOB_HISTORY to use another directory for this one",
                ) from None
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(fd)


def deleted_state(state: JobState, deleted_at: float, message: str = "") -> JobState:
    if state.phase.final:
        return msgspec.structs.replace(state, deleted=deleted_at)
    return msgspec.structs.replace(
        state,
        phase=Phase.CANCELLED,
        reason="Deleted",
        message=message or f"the job was deleted while it was {state.phase.value}",
        waiting_for="",
        # A suspended job stopped using its resources when it was suspended.
        released=state.finished,
        finished=deleted_at,
        deleted=deleted_at,
    )


def deleted_event(deleted_at: float, attempt: int) -> Event:
    return Event(deleted_at, "Deleted", "job deleted; its history is kept", attempt=attempt)


def _add_events(db: Connection, key: JobKey, events: Iterable[Event], unique_reasons: frozenset[str]) -> None:
    query = "SELECT event FROM events WHERE namespace=? AND uid=? AND reason=?"
    stored = {
        (event.reason, event.attempt)
        for reason in unique_reasons
        for (encoded,) in db.execute(query, (*key, reason))
        for event in (codec.decode(encoded, Event),)
    }
    new = [event for event in events if (event.reason, event.attempt) not in stored]
    db.executemany(
        "INSERT INTO events (namespace, uid, time, reason, message, event) VALUES (?,?,?,?,?,?)"
        " ON CONFLICT DO NOTHING",
        [(*key, event.time, event.reason, event.message, _encode(event)) for event in new],
    )


def _end_time(state: JobState) -> float | None:
    return (state.finished if state.phase.final else None) or state.deleted


def _add_transition(db: Connection, state: JobState, now: float) -> None:
    """Store the state if it differs from the last one."""
    transition = Transition(
        now, state.phase.value, state.reason, state.message, state.attempt, state.aggregate
    )
    row = db.execute(
        "SELECT moment FROM moments WHERE namespace=? AND uid=? ORDER BY time DESC LIMIT 1", state.ref.key
    ).fetchone()
    if row is None or msgspec.structs.replace(codec.decode(row[0], Transition), time=now) != transition:
        values = (*state.ref.key, now, _encode(transition))
        db.execute("INSERT INTO moments (namespace, uid, time, moment) VALUES (?,?,?,?)", values)


def _has_lines_between(db: Connection, gap: Gap, after_ns: int) -> bool:
    """Return whether lines exist between an earlier gap of a log source and this one."""
    sql = "SELECT 1 FROM chunks WHERE voice=? AND lines>0 AND first_ns>=? AND last_ns<=? LIMIT 1"
    return db.execute(sql, (gap.source_id, after_ns, gap.first_ns)).fetchone() is not None


def _parse_source(row: tuple[Any, ...]) -> LogSource:
    namespace, uid, attempt, role, worker, rank, source, origin, form, family, tagged, source_id, ended = row
    return LogSource(
        key=JobKey(namespace, uid), attempt=attempt, role=Role(role), worker=worker, rank=rank, source=source,
        origin=origin, format=LogFormat(form), family=family, tagged=bool(tagged), id=source_id, ended=bool(ended),
    )  # fmt: skip


def _parse_chunk(row: tuple[Any, ...]) -> Chunk:
    chunk_id, source_id, file, first_ns, last_ns, lines, raw_bytes, size, ranks, sealed = row
    return Chunk(
        id=chunk_id, source_id=source_id, file=file, first_ns=first_ns, last_ns=last_ns, lines=lines,
        raw_bytes=raw_bytes, size=size, ranks=ranks, sealed=bool(sealed),
    )  # fmt: skip
