"""The state of the local engine: one SQLite database in WAL mode.

Every change is one transaction, so a process that is killed leaves the old state or the new one. `scheduler` decides
which job is next; this module only reads and writes rows.
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
# In seconds since the epoch: `not_before` of a job that waits for others, until they have ended.
NEVER = 1e15
HELD = f"phase='Queued' AND not_before>={NEVER:.0f}"
DELAYED = f"phase='Queued' AND not_before>0 AND not_before<{NEVER:.0f}"
SCHEDULABLE = f"phase='Queued' AND desired='' AND not_before<{NEVER:.0f}"
# The scheduler reads only the first job of each `turn` (same owner, same group), however many wait behind it.
# `command` and `time_limit` are for wait estimates: which runs are alike, and when a job ends at the latest. They are
# NULL in rows of earlier releases, for which the plan has to be read.
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
# PRAGMA user_version is the number of those that were applied. Each only adds columns, tables and indexes, so that a
# process of an older release can go on with a newer format.
_MIGRATIONS = (_SCHEMA, _USAGE, _WAITS, _ATTEMPTS, _LIMITS, _TURNS)
_VERSION = len(_MIGRATIONS)

_encode = msgspec.json.encode
decode_state = codec.decoder(JobState).decode


class EarlierRuns(NamedTuple):
    """The number of jobs of a name, and the run number of the last one, 0 if an earlier release gave it none."""

    jobs: int = 0
    last: int = 0

    def merge(self, others: EarlierRuns) -> EarlierRuns:
        return EarlierRuns(self.jobs + others.jobs, max(self.last, others.last))

    @property
    def next(self) -> int:
        return max(self.jobs, self.last) + 1


class Row(NamedTuple):
    """The columns of a job that the engine itself uses."""

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
    """The stores of the present thread; those of other threads may be in use."""

    def __init__(self) -> None:
        self.stores: weakref.WeakSet[Store] = weakref.WeakSet()

    def close(self) -> None:
        for store in self.stores:
            store.close()


# SQLite's locks belong to the process. A child that has a connection of its parent, even unused, takes locks for held
# that are not; the last other process then truncates the journal in which the child writes: "database disk image is
# malformed" (docs/decisions/0007).
_thread_stores = _ThreadStores()
os.register_at_fork(before=_thread_stores.close)


class Store:
    """The database, for use by one thread; a fork closes it, and the next use opens it again.

    A newer format raises BackendError unless `accept_newer`, which is for runners and supervisors: their jobs go on
    while another release is installed. With `allow_full_disk`, reads on a full disk return the last written state and
    log a warning.
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
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock; commit at the end, roll back on an error."""
        # IMMEDIATE: a transaction that reads first and writes later fails where another process wrote in between.
        # BaseException: also KeyboardInterrupt, which the handler of a signal may raise anywhere.
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
        # Rarely needed: its import would delay every command.
        from mpijob.backends.local.queue import disk_full

        rows = disk_full.read_last_written(self.home.database, _VERSION, sql, values)
        if rows is not None:
            self.warn_once(
                f"{self.home.database} is not writable: jobs are shown in their last recorded state"
            )
        return rows

    def warn_once(self, sentence: str) -> None:
        """Log a warning, unless this object has logged it before."""
        if sentence not in self._warned:
            # Only for warnings: its import takes milliseconds.
            import logging

            self._warned.add(sentence)
            logging.getLogger(__name__).warning("%s", sentence)

    @property
    def data_version(self) -> int:
        """A number that changes when another process has written (PRAGMA data_version)."""
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
        """Store a new job, the next run of its name; raise Conflict while a job of that name is not finished.

        Finished jobs of the name stay, under their uids. `deleted` are runs of which only the archive knows.
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
        """Return a job by uid, or the newest of its name; None if there is none."""
        if ref.uid:
            rows = self.read(f"SELECT {_ROW} FROM jobs WHERE namespace=? AND uid=?", ref.namespace, ref.uid)
        else:
            rows = self.read(
                f"SELECT {_ROW} FROM jobs WHERE namespace=? AND name=? AND newest=1",
                ref.namespace, ref.name,
            )  # fmt: skip
        return _row(rows[0]) if rows else None

    def rows(self, where: str, *values: Any) -> list[Row]:
        """Return the jobs for which an SQL condition holds, oldest first."""
        return [
            _row(row) for row in self.read(f"SELECT {_ROW} FROM jobs WHERE {where} ORDER BY seq", *values)
        ]

    def is_current(self) -> bool:
        """Return whether the database still has this release's format."""
        return bool(self.read("PRAGMA user_version")[0][0] == _VERSION)

    def plan(self, uid: str) -> Plan:
        """Return a job's plan; raise NotFound if the job was deleted meanwhile."""
        # A list of jobs needs no plans.
        from mpijob.model import Plan

        rows = self.read("SELECT plan FROM plans WHERE uid=?", uid)
        if not rows:
            raise NotFound(f"the plan of job {uid} no longer exists")
        return codec.decode(rows[0][0], Plan)

    def replace_plan(self, uid: str, plan: Plan) -> None:
        """Replace a job's plan, for its next attempts."""
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
        """Store a job's state, events and other columns in one transaction.

        Nothing is written if the SQL condition `only_if` does not hold (any more). `ended` is the last state of the
        attempt before, which is stored too.
        """
        assigned = "".join(f", {column}=?" for column in columns)
        with self.transaction() as db:
            updated = db.execute(
                f"UPDATE jobs SET phase=?, state=?, attempt=?, version=version+1{assigned} WHERE uid=? AND {only_if}",
                (state.phase.value, _encode(state), state.attempt, *columns.values(), state.ref.uid),
            )
            if not updated.rowcount:
                return
            _add_events(db, state.ref.uid, events)
            if ended is not None:
                db.execute(
                    "INSERT OR REPLACE INTO attempts VALUES (?,?,?)",
                    (ended.ref.uid, ended.attempt, _encode(ended)),
                )

    def request(self, uid: str, desired: str, grace: float | None) -> None:
        """Store a user's request, which the job's supervisor reads."""
        with self.transaction() as db:
            db.execute("UPDATE jobs SET desired=?, grace=? WHERE uid=?", (desired, grace, uid))

    def remove(self, uid: str) -> None:
        """Delete a job and all its rows; the newest job left of its name becomes the one that the name means."""
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
        """Return the last state of each attempt but the present one; earlier releases did not store them."""
        rows = self.read("SELECT state FROM attempts WHERE uid=? ORDER BY attempt", uid)
        return [decode_state(state) for (state,) in rows]

    # -- events and samples -----------------------------------------------------------------------
    def events(self, uid: str, after: int = 0) -> list[Event]:
        rows = self.read("SELECT seq, event FROM events WHERE uid=? AND seq>? ORDER BY seq", uid, after)
        return [msgspec.structs.replace(codec.decode(event, Event), sequence=seq) for seq, event in rows]

    def add_samples(self, uid: str, samples: tuple[Sample, ...]) -> None:
        """Append usage samples to a job, and add them to its totals."""
        # A list of jobs needs no accounts.
        from mpijob.history import account_store

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
    """Return a hash that is equal for runs that probably take equally long: same command, image and world size."""
    return hashlib.blake2b(_encode((*job.words, job.image, job.world)), digest_size=16).hexdigest()


def time_limit(job: MPIJob) -> float | None:
    """Return the longest time that a job can run in seconds, None if it has no deadline."""
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
        # For the database and its journals, which SQLite creates with the mode of the database.
        old_mask = os.umask(0o077)
        try:
            db = sqlite3.connect(home.database, timeout=30, isolation_level=None)
            # In WAL mode, a power failure may lose the last transactions but never damages the database.
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
    """Create the tables, or migrate those of an older format, in one transaction."""
    # Needed once for each home.
    from mpijob.history.storage.database import enable_wal

    enable_wal(db)
    db.execute("BEGIN IMMEDIATE")
    # The version again, now under the lock: another process may have migrated meanwhile.
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
