"""The local engine's truth: one SQLite database in WAL mode.

Every change is one transaction, so a process killed at any moment leaves either the old or the
new truth. Scheduling decisions are in `scheduler`; here rows are only written and read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mpijob import codec
from mpijob.backends.common_errors import name_in_use
from mpijob.backends.state_home import cannot_write
from mpijob.errors import BackendError, NotFound
from mpijob.model import Event, JobState, Phase, Sample

if TYPE_CHECKING:
    from mpijob.backends.local.storage.paths import Home
    from mpijob.model import JobRef, MPIJob, Plan

_SCHEMA = """
CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL UNIQUE,
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  newest INTEGER NOT NULL DEFAULT 1,      -- 1: the job that the name means now
  owner TEXT NOT NULL,
  queue TEXT NOT NULL DEFAULT '',
  labels TEXT NOT NULL,
  priority INTEGER NOT NULL,
  phase TEXT NOT NULL,
  state BLOB NOT NULL,
  cores REAL NOT NULL,                    -- what the job holds once it starts
  memory INTEGER NOT NULL,
  gpus INTEGER NOT NULL,
  gpu_ids TEXT NOT NULL DEFAULT '',
  holds INTEGER NOT NULL DEFAULT 0,       -- 1: those amounts are taken now
  attempt INTEGER NOT NULL DEFAULT 1,
  not_before REAL NOT NULL DEFAULT 0,
  desired TEXT NOT NULL DEFAULT '',       -- cancel, suspend, delete: what a user asked for
  grace REAL,
  runner TEXT NOT NULL DEFAULT '',        -- pid:start time of the process that runs the job
  supervisor TEXT NOT NULL DEFAULT '',
  version INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX one_newest ON jobs (namespace, name) WHERE newest = 1;
CREATE INDEX listed ON jobs (namespace, seq) WHERE newest = 1;
CREATE INDEX ended ON jobs (seq) WHERE phase IN ('Succeeded', 'Failed');
CREATE INDEX by_phase ON jobs (phase, priority DESC, seq);
CREATE INDEX holding ON jobs (holds) WHERE holds = 1;
CREATE TABLE plans (uid TEXT PRIMARY KEY, plan BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL, event BLOB NOT NULL
) STRICT;
CREATE INDEX events_of ON events (uid, seq);
CREATE TABLE samples (
  uid TEXT NOT NULL, attempt INTEGER NOT NULL, worker INTEGER NOT NULL, time REAL NOT NULL,
  cores REAL NOT NULL, memory INTEGER NOT NULL
) STRICT;
CREATE INDEX samples_of ON samples (uid, time);
"""
_USAGE = """
ALTER TABLE samples ADD COLUMN gpus REAL NOT NULL DEFAULT 0;
ALTER TABLE samples ADD COLUMN gpu_memory INTEGER NOT NULL DEFAULT 0;
CREATE TABLE tallies (
  uid TEXT NOT NULL, attempt INTEGER NOT NULL, worker INTEGER NOT NULL, first REAL NOT NULL, last REAL NOT NULL,
  cpu_seconds REAL NOT NULL, byte_seconds REAL NOT NULL, gpu_seconds REAL NOT NULL, peak_bytes INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  PRIMARY KEY (uid, attempt, worker)
) STRICT, WITHOUT ROWID;
"""
_WAITS = """
ALTER TABLE samples ADD COLUMN io_wait REAL NOT NULL DEFAULT 0;
ALTER TABLE samples ADD COLUMN network REAL NOT NULL DEFAULT 0;
"""
_ATTEMPTS = """
CREATE TABLE attempts (
  uid TEXT NOT NULL, attempt INTEGER NOT NULL, state BLOB NOT NULL,   -- as each attempt but the last ended
  PRIMARY KEY (uid, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX named ON jobs (namespace, name, seq);
"""
# `ttl`: seconds after its end until a job is deleted; `at_once`: how many jobs `member_of` a group may hold resources
_LIMITS = """
ALTER TABLE jobs ADD COLUMN ttl REAL;
ALTER TABLE jobs ADD COLUMN member_of TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN at_once INTEGER;
CREATE INDEX expiring ON jobs (phase) WHERE ttl IS NOT NULL;
"""
NEVER = 1e15  # seconds since the epoch: `not_before` of a job that waits for others, until they have ended
HELD = f"phase='Queued' AND not_before>={NEVER:.0f}"
DELAYED = f"phase='Queued' AND not_before>0 AND not_before<{NEVER:.0f}"
SCHEDULABLE = f"phase='Queued' AND desired='' AND not_before<{NEVER:.0f}"
# Who is next is found by the first job of each `turn` (same owner, same group), however many wait behind it.
# `command` and `time_limit`: which runs were alike, and when a job is ended in any case; NULL: only its plan tells
_TURNS = f"""
ALTER TABLE jobs ADD COLUMN turn TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN command TEXT;
ALTER TABLE jobs ADD COLUMN time_limit REAL;
UPDATE jobs SET turn = json_array(namespace, owner, member_of, at_once);
CREATE INDEX in_turn ON jobs (turn, priority DESC, seq, not_before, phase, desired) WHERE {SCHEDULABLE};
CREATE INDEX waiting ON jobs (priority DESC, seq, not_before, phase, desired) WHERE {SCHEDULABLE};
CREATE INDEX held_back ON jobs (seq) WHERE {HELD};
CREATE INDEX delayed ON jobs (not_before) WHERE {DELAYED};
"""
_MIGRATIONS = (_SCHEMA, _USAGE, _WAITS, _ATTEMPTS, _LIMITS, _TURNS)
_VERSION = len(_MIGRATIONS)

_encode = msgspec.json.encode
decode_state = codec.decoder(JobState).decode


class EarlierRuns(NamedTuple):
    """How many jobs of a name there were, and the number of the last one; earlier releases gave them none."""

    jobs: int = 0
    last: int = 0

    def merge(self, others: EarlierRuns) -> EarlierRuns:
        """Return these and others together."""
        return EarlierRuns(self.jobs + others.jobs, max(self.last, others.last))

    @property
    def next(self) -> int:
        """The number of the next run."""
        return max(self.jobs, self.last) + 1


class Row(NamedTuple):
    """What the engine itself needs of a job."""

    seq: int
    uid: str
    phase: Phase
    state: JobState
    attempt: int
    holds: bool
    desired: str
    grace: float | None
    runner: str
    supervisor: str
    gpu_ids: str


_ROW = "seq, uid, phase, state, attempt, holds, desired, grace, runner, supervisor, gpu_ids"


def _row(values: tuple[Any, ...]) -> Row:
    seq, uid, phase, state, attempt, holds, *rest = values
    return Row(seq, uid, Phase(phase), decode_state(state), attempt, bool(holds), *rest)


class _ThreadStores(threading.local):
    """The stores of each thread: one that another thread uses may not be closed."""

    def __init__(self) -> None:
        self.stores: weakref.WeakSet[Store] = weakref.WeakSet()

    def close(self) -> None:
        for store in self.stores:
            store.close()


_thread_stores = _ThreadStores()
os.register_at_fork(before=_thread_stores.close)


class Store:
    """The database, of one thread. Whoever forks closes it by that, and opens it anew when it is used again.

    SQLite knows its locks by process: of a connection that is carried along, even unused, the child's own next one
    takes it that they are held. The last of all others then clears the journal in which the child writes.

    A newer format is refused, but not by who is at work (`begun`): each format only adds to the one before, so that a
    job goes on to its end while another release is installed.

    Who only calls (`even_full`) reads what was last written where the disk takes no more, and is told that it is that.
    """

    def __init__(self, home: Home, *, accept_newer: bool = False, allow_full_disk: bool = False) -> None:
        self.home = home
        self.allow_full_disk = allow_full_disk
        self._warned: set[str] = set()
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = _open(home, accept_newer=accept_newer)
        except BackendError:
            if self._read_last_written("PRAGMA user_version") is None:
                raise
        _thread_stores.stores.add(self)

    @property
    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _open(self.home, accept_newer=True)
        return self._connection

    def close(self) -> None:
        """Close the database."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock; commit at the end, roll back on an error, also one that a signal's handler raises."""
        with _translate_errors(self.home.database):
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def read(self, sql: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        try:
            with _translate_errors(self.home.database):
                return self._db.execute(sql, values).fetchall()
        except BackendError:
            rows = self._read_last_written(sql, *values)
            if rows is None:
                raise
            return rows

    def _read_last_written(self, sql: str, *values: Any) -> list[Any] | None:
        if not self.allow_full_disk:
            return None
        from mpijob.backends.local.queue import disk_full  # rarely needed: start-up is a feature

        rows = disk_full.read_last_written(self.home.database, _VERSION, sql, values)
        if rows is not None:
            self.warn_once(
                f"{self.home.database} is not writable: jobs are shown in their last recorded state"
            )
        return rows

    def warn_once(self, sentence: str) -> None:
        """Say what does not end a call, once."""
        if sentence not in self._warned:
            import logging  # only when something went wrong

            self._warned.add(sentence)
            logging.getLogger(__name__).warning("%s", sentence)

    @property
    def data_version(self) -> int:
        """A number that changes when another process has written."""
        return int(self.read("PRAGMA data_version")[0][0])

    # -- jobs -------------------------------------------------------------------------------------
    def add(
        self,
        plan: Plan,
        state: JobState,
        labels: str,
        priority: int,
        not_before: float = 0.0,
        *,
        deleted: EarlierRuns = EarlierRuns(),  # noqa: B008 - a value
    ) -> None:
        """Write a new job as one transaction; raise Conflict when a job of that name is not finished.

        The record of a finished job that had the name before stays, under its uid. The new one is the next run;
        `deleted` are those that are remembered elsewhere.
        """
        ref, earlier = state.ref, False
        with self.transaction() as db:
            state = msgspec.structs.replace(state, run=_earlier_runs(db, ref).merge(deleted).next)
            for uid, phase in db.execute(
                "SELECT uid, phase FROM jobs WHERE namespace=? AND name=? AND newest=1",
                (ref.namespace, ref.name),
            ).fetchall():
                if not Phase(phase).final:
                    raise name_in_use(ref, Phase(phase))
                db.execute("UPDATE jobs SET newest=0 WHERE uid=?", (uid,))
                earlier = True
            needs, job = plan.needs, plan.job
            at_once = None if job.concurrency is None else job.concurrency.limit
            turn = _encode([ref.namespace, state.owner, job.group, at_once]).decode()
            db.execute(
                "INSERT INTO jobs (uid, namespace, name, owner, queue, labels, priority, phase, state, cores, memory,"
                " gpus, not_before, ttl, member_of, at_once, turn, command, time_limit)"
                " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (ref.uid, ref.namespace, ref.name, state.owner, state.queue, labels, priority,
                 state.phase.value, _encode(state), needs.cores, needs.memory_bytes, needs.gpus,
                 not_before, job.ttl_seconds, job.group, at_once, turn, command_hash(job), time_limit(job)),
            )  # fmt: skip
            db.execute("INSERT INTO plans VALUES (?,?)", (ref.uid, _encode(plan)))
            text = f"submitted by {state.owner}" + (
                "; an earlier job of this name had ended" if earlier else ""
            )
            _add_events(db, ref.uid, (Event(state.created, "Submitted", text),))

    def find(self, ref: JobRef) -> Row | None:
        """Return the job that a reference means now."""
        if ref.uid:
            rows = self.read(f"SELECT {_ROW} FROM jobs WHERE namespace=? AND uid=?", ref.namespace, ref.uid)
        else:
            rows = self.read(
                f"SELECT {_ROW} FROM jobs WHERE namespace=? AND name=? AND newest=1",
                ref.namespace, ref.name,
            )  # fmt: skip
        return _row(rows[0]) if rows else None

    def rows(self, where: str, *values: Any) -> list[Row]:
        """Return the jobs for which a condition holds, oldest first."""
        return [
            _row(row) for row in self.read(f"SELECT {_ROW} FROM jobs WHERE {where} ORDER BY seq", *values)
        ]

    def is_current(self) -> bool:
        """Return whether the tables still have the format that this release knows."""
        return bool(self.read("PRAGMA user_version")[0][0] == _VERSION)

    def plan(self, uid: str) -> Plan:
        """Return the plan that a job runs by; `NotFound` where the job was deleted meanwhile."""
        from mpijob.model import Plan  # a list needs none: start-up is a feature

        rows = self.read("SELECT plan FROM plans WHERE uid=?", uid)
        if not rows:
            raise NotFound(f"the plan of job {uid} no longer exists")
        return codec.decode(rows[0][0], Plan)

    def replace_plan(self, uid: str, plan: Plan) -> None:
        """Let a job run by another plan from its next attempt on."""
        with self.transaction() as db:
            db.execute("UPDATE plans SET plan=? WHERE uid=?", (_encode(plan), uid))

    def put(
        self,
        state: JobState,
        *events: Event,
        only_if: str = "1",
        ended: JobState | None = None,
        **columns: Any,
    ) -> None:
        """Write a job's state, its other columns and the events that go with it, together.

        Nothing is written where the condition `only_if` does not hold (any more). `ended` is the state of the attempt
        before, which is kept beside it.
        """
        assigned = "".join(f", {column}=?" for column in columns)
        with self.transaction() as db:
            done = db.execute(
                f"UPDATE jobs SET phase=?, state=?, attempt=?, version=version+1{assigned} WHERE uid=? AND {only_if}",
                (state.phase.value, _encode(state), state.attempt, *columns.values(), state.ref.uid),
            )
            _add_events(db, state.ref.uid, events if done.rowcount else ())
            if ended is not None and done.rowcount:
                db.execute(
                    "INSERT OR REPLACE INTO attempts VALUES (?,?,?)",
                    (ended.ref.uid, ended.attempt, _encode(ended)),
                )

    def request(self, uid: str, desired: str, grace: float | None) -> None:
        """Note what a user wants to happen to a job."""
        with self.transaction() as db:
            db.execute("UPDATE jobs SET desired=?, grace=? WHERE uid=?", (desired, grace, uid))

    def remove(self, uid: str) -> None:
        """Forget a job and everything said about it."""
        with self.transaction() as db:
            row = db.execute("SELECT namespace, name, newest FROM jobs WHERE uid=?", (uid,)).fetchone()
            for table in ("jobs", "plans", "events", "samples", "tallies", "attempts"):
                db.execute(f"DELETE FROM {table} WHERE uid=?", (uid,))
            if row and row[2]:
                db.execute(
                    "UPDATE jobs SET newest=1 WHERE seq=(SELECT max(seq) FROM jobs WHERE namespace=? AND name=?)",
                    row[:2],
                )

    def attempts(self, uid: str) -> list[JobState]:
        """Return how each attempt but the last ended, as far as that was kept."""
        rows = self.read("SELECT state FROM attempts WHERE uid=? ORDER BY attempt", uid)
        return [decode_state(state) for (state,) in rows]

    # -- what is said and measured ----------------------------------------------------------------
    def events(self, uid: str, after: int = 0) -> list[Event]:
        """Return a job's events after a sequence number."""
        rows = self.read("SELECT seq, event FROM events WHERE uid=? AND seq>? ORDER BY seq", uid, after)
        return [msgspec.structs.replace(codec.decode(event, Event), sequence=seq) for seq, event in rows]

    def add_samples(self, uid: str, samples: tuple[Sample, ...]) -> None:
        """Append usage samples to a job, and to what it used in all."""
        from mpijob.history import account_store  # a list needs none: start-up is a feature

        with self.transaction() as db:
            db.executemany(
                "INSERT INTO samples VALUES (?,?,?,?,?,?,?,?,?,?)",
                [(uid, s.attempt, s.worker, s.time, s.cpu_cores, s.memory_bytes, s.gpus, s.gpu_memory_bytes,
                  s.io_wait, s.network)
                 for s in account_store.LOCAL_TALLIES.add_samples(db, (uid,), samples)],
            )  # fmt: skip

    def samples(self, uid: str) -> tuple[Sample, ...]:
        """Return a job's usage samples in time order."""
        rows = self.read(
            "SELECT time, worker, cores, memory, attempt, gpus, gpu_memory, io_wait, network FROM samples"
            " WHERE uid=? ORDER BY time, worker", uid,
        )  # fmt: skip
        return tuple(Sample(*row) for row in rows)


def command_hash(job: MPIJob) -> str:
    """Return what runs of equal length have in common: every word, the image and the size of the world."""
    return hashlib.blake2b(_encode((*job.words, job.image, job.world)), digest_size=16).hexdigest()


def time_limit(job: MPIJob) -> float | None:
    """Return the seconds after which a job has ended in any case."""
    return None if job.deadline_seconds is None else job.deadline_seconds + job.grace_seconds


def _earlier_runs(db: sqlite3.Connection, ref: JobRef) -> EarlierRuns:
    of_name = "FROM jobs WHERE namespace=? AND name=?"
    (count,) = db.execute(f"SELECT count(*) {of_name}", (ref.namespace, ref.name)).fetchone()
    newest = db.execute(
        f"SELECT state {of_name} ORDER BY seq DESC LIMIT 1", (ref.namespace, ref.name)
    ).fetchone()
    return EarlierRuns(count, decode_state(newest[0]).run if newest else 0)


def _add_events(db: sqlite3.Connection, uid: str, events: tuple[Event, ...]) -> None:
    db.executemany(
        "INSERT INTO events (uid, event) VALUES (?,?)", [(uid, _encode(event)) for event in events]
    )


def _open(home: Home, *, accept_newer: bool) -> sqlite3.Connection:
    home.ensure()
    with _translate_errors(home.database):
        old_mask = os.umask(0o077)
        try:
            db = sqlite3.connect(home.database, timeout=30, isolation_level=None)
            db.execute("PRAGMA synchronous=NORMAL")
        finally:
            os.umask(old_mask)
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version < _VERSION:
            _migrate(db)
        elif version > _VERSION and not accept_newer:
            raise BackendError(
                f"{home.database} was written by a newer mpijob (format {version}, this one knows {_VERSION})",
                hint="use the newer version, or set MPIJOB_HOME to another directory",
            )
        return db


def _migrate(db: sqlite3.Connection) -> None:
    """Make the tables, or bring those of an older format forward, in one transaction."""
    from mpijob.history.storage.database import (
        enable_wal,  # once in the life of a home: start-up is a feature
    )

    enable_wal(db)
    db.execute("BEGIN IMMEDIATE")
    for step in _MIGRATIONS[db.execute("PRAGMA user_version").fetchone()[0] :]:
        for statement in step.split(";\n"):
            db.execute(statement)
    db.execute(f"PRAGMA user_version={_VERSION}")
    db.execute("COMMIT")


@contextlib.contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "disk" in text or "full" in text or "readonly" in text or "unable to open" in text:
            raise cannot_write(path, text) from error
        raise BackendError(f"the state database {path} is not available: {text}") from error
    except sqlite3.DatabaseError as error:
        raise BackendError(
            f"the state database {path} is damaged: {error}",
            hint="move it away to start with an empty database; the logs of jobs stay readable",
        ) from error
