"""The tables of an archive and their migrations; `database` opens them.

Each step of `_MIGRATIONS` migrates the schema from one version to the next, in one transaction, on live data. A
released step is never changed; a new schema is a new step. The SQL is kept to the subset that PostgreSQL
shares, where that costs nothing. Steps are SQL; what needs Python (`_BACKFILLS`) runs after the last step and
finds the newest schema, whatever the first version was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijob.history.storage import layout

_MIGRATIONS = (
    """
CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL UNIQUE,
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  phase TEXT NOT NULL,
  created REAL NOT NULL,
  ended REAL,                             -- when it ended, or was deleted before that
  deleted REAL,
  first_seen REAL NOT NULL,
  last_seen REAL NOT NULL,
  state BLOB NOT NULL,
  spec BLOB,
  plan BLOB
) STRICT;
CREATE INDEX jobs_of ON jobs (namespace, name, created);
CREATE INDEX jobs_deleted ON jobs (namespace, deleted);
CREATE INDEX jobs_ended ON jobs (ended);
CREATE TABLE moments (
  uid TEXT NOT NULL, time REAL NOT NULL, moment BLOB NOT NULL
) STRICT;
CREATE INDEX moments_of ON moments (uid, time);
CREATE TABLE events (
  uid TEXT NOT NULL, time REAL NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL, event BLOB NOT NULL,
  PRIMARY KEY (uid, time, reason, message)
) STRICT, WITHOUT ROWID;
CREATE TABLE facts (
  uid TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, fact BLOB NOT NULL,
  PRIMARY KEY (uid, kind, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE samples (
  uid TEXT NOT NULL, attempt INTEGER NOT NULL, worker INTEGER NOT NULL, time REAL NOT NULL,
  cores REAL NOT NULL, memory INTEGER NOT NULL
) STRICT;
CREATE INDEX samples_of ON samples (uid, time);
CREATE TABLE voices (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL, attempt INTEGER NOT NULL, source TEXT NOT NULL, origin TEXT NOT NULL,
  role TEXT NOT NULL, worker INTEGER, rank INTEGER,
  form TEXT NOT NULL, family TEXT NOT NULL, tagged INTEGER NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0,
  UNIQUE (uid, attempt, source, origin)
) STRICT;
CREATE TABLE chunks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  voice INTEGER NOT NULL, uid TEXT NOT NULL, file TEXT NOT NULL,
  first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
  lines INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, size INTEGER NOT NULL,
  ranks TEXT NOT NULL, sealed INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX chunks_of ON chunks (voice, id);
CREATE INDEX chunks_by_job ON chunks (uid);
CREATE INDEX chunks_by_age ON chunks (last_ns);
CREATE TABLE gaps (
  uid TEXT NOT NULL, voice INTEGER NOT NULL, first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
  reason TEXT NOT NULL, gap BLOB NOT NULL
) STRICT;
CREATE INDEX gaps_of ON gaps (uid, first_ns);
CREATE TABLE sessions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, began REAL NOT NULL, beat REAL NOT NULL, ended REAL
) STRICT;
""",
    """
ALTER TABLE samples ADD COLUMN gpus REAL NOT NULL DEFAULT 0;
ALTER TABLE samples ADD COLUMN gpu_memory INTEGER NOT NULL DEFAULT 0;
CREATE TABLE tallies (
  uid TEXT NOT NULL, attempt INTEGER NOT NULL, worker INTEGER NOT NULL, first REAL NOT NULL, last REAL NOT NULL,
  cpu_seconds REAL NOT NULL, byte_seconds REAL NOT NULL, gpu_seconds REAL NOT NULL, peak_bytes INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  PRIMARY KEY (uid, attempt, worker)
) STRICT, WITHOUT ROWID;
CREATE TABLE accounts (
  uid TEXT NOT NULL PRIMARY KEY,
  namespace TEXT NOT NULL, name TEXT NOT NULL, owner TEXT NOT NULL, phase TEXT NOT NULL, queue TEXT NOT NULL,
  cause TEXT NOT NULL, program TEXT NOT NULL, created REAL NOT NULL, ended REAL,
  labels TEXT NOT NULL, account BLOB NOT NULL
) STRICT;
CREATE INDEX accounts_by_time ON accounts (created, uid);
CREATE INDEX accounts_of ON accounts (namespace, created, uid);
CREATE INDEX accounts_by_owner ON accounts (owner, created, uid);
CREATE INDEX accounts_by_program ON accounts (program, created, uid);
CREATE INDEX accounts_by_end ON accounts (ended);
""",
    """
ALTER TABLE samples ADD COLUMN io_wait REAL NOT NULL DEFAULT 0;
ALTER TABLE samples ADD COLUMN network REAL NOT NULL DEFAULT 0;
""",
    # A job is identified by namespace and uid. Rows without a job and an account are dropped.
    # `jobs_key` is the last index: in a table that is small yet, PostgreSQL takes the last of those that seem equal,
    # and keeps that plan for a prepared statement until the table is analyzed.
    """
CREATE TABLE owners (uid TEXT NOT NULL PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL) STRICT;
INSERT INTO owners SELECT uid, namespace, name FROM jobs;
INSERT INTO owners SELECT a.uid, a.namespace, a.name FROM accounts a
  WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.uid=a.uid);
CREATE TABLE new_jobs (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  namespace TEXT NOT NULL, uid TEXT NOT NULL, name TEXT NOT NULL, phase TEXT NOT NULL,
  created REAL NOT NULL, ended REAL, deleted REAL, first_seen REAL NOT NULL, last_seen REAL NOT NULL,
  state BLOB NOT NULL, spec BLOB, plan BLOB
) STRICT;
INSERT INTO new_jobs (seq, namespace, uid, name, phase, created, ended, deleted, first_seen, last_seen, state, spec,
  plan) SELECT seq, namespace, uid, name, phase, created, ended, deleted, first_seen, last_seen, state, spec, plan
  FROM jobs ORDER BY seq;
DROP TABLE jobs;
ALTER TABLE new_jobs RENAME TO jobs;
CREATE INDEX jobs_of ON jobs (namespace, name, created);
CREATE INDEX jobs_deleted ON jobs (namespace, deleted);
CREATE INDEX jobs_ended ON jobs (ended);
CREATE UNIQUE INDEX jobs_key ON jobs (namespace, uid);
CREATE TABLE new_moments (
  namespace TEXT NOT NULL, uid TEXT NOT NULL, time REAL NOT NULL, moment BLOB NOT NULL
) STRICT;
INSERT INTO new_moments SELECT o.namespace, t.uid, t.time, t.moment FROM moments t JOIN owners o ON o.uid=t.uid;
DROP TABLE moments;
ALTER TABLE new_moments RENAME TO moments;
CREATE INDEX moments_of ON moments (namespace, uid, time);
CREATE TABLE new_events (
  namespace TEXT NOT NULL, uid TEXT NOT NULL, time REAL NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL,
  event BLOB NOT NULL,
  PRIMARY KEY (namespace, uid, time, reason, message)
) STRICT, WITHOUT ROWID;
INSERT INTO new_events SELECT o.namespace, t.uid, t.time, t.reason, t.message, t.event
  FROM events t JOIN owners o ON o.uid=t.uid;
DROP TABLE events;
ALTER TABLE new_events RENAME TO events;
CREATE TABLE new_facts (
  namespace TEXT NOT NULL, uid TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, fact BLOB NOT NULL,
  PRIMARY KEY (namespace, uid, kind, name)
) STRICT, WITHOUT ROWID;
INSERT INTO new_facts SELECT o.namespace, t.uid, t.kind, t.name, t.fact FROM facts t JOIN owners o ON o.uid=t.uid;
DROP TABLE facts;
ALTER TABLE new_facts RENAME TO facts;
CREATE TABLE new_samples (
  namespace TEXT NOT NULL, uid TEXT NOT NULL, attempt INTEGER NOT NULL, worker INTEGER NOT NULL, time REAL NOT NULL,
  cores REAL NOT NULL, memory INTEGER NOT NULL, gpus REAL NOT NULL, gpu_memory INTEGER NOT NULL,
  io_wait REAL NOT NULL, network REAL NOT NULL
) STRICT;
INSERT INTO new_samples SELECT o.namespace, t.uid, t.attempt, t.worker, t.time, t.cores, t.memory, t.gpus,
  t.gpu_memory, t.io_wait, t.network FROM samples t JOIN owners o ON o.uid=t.uid;
DROP TABLE samples;
ALTER TABLE new_samples RENAME TO samples;
CREATE INDEX samples_of ON samples (namespace, uid, time);
CREATE TABLE new_voices (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  namespace TEXT NOT NULL, uid TEXT NOT NULL, attempt INTEGER NOT NULL, source TEXT NOT NULL, origin TEXT NOT NULL,
  role TEXT NOT NULL, worker INTEGER, rank INTEGER,
  form TEXT NOT NULL, family TEXT NOT NULL, tagged INTEGER NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0,
  UNIQUE (namespace, uid, attempt, source, origin)
) STRICT;
INSERT INTO new_voices (id, namespace, uid, attempt, source, origin, role, worker, rank, form, family, tagged, ended)
  SELECT t.id, o.namespace, t.uid, t.attempt, t.source, t.origin, t.role, t.worker, t.rank, t.form, t.family,
  t.tagged, t.ended FROM voices t JOIN owners o ON o.uid=t.uid ORDER BY t.id;
DROP TABLE voices;
ALTER TABLE new_voices RENAME TO voices;
CREATE TABLE new_chunks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  voice INTEGER NOT NULL, namespace TEXT NOT NULL, uid TEXT NOT NULL,
  file TEXT NOT NULL,                     -- below the directory of logs, and in the object store
  first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
  lines INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, size INTEGER NOT NULL,
  ranks TEXT NOT NULL, sealed INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO new_chunks (id, voice, namespace, uid, file, first_ns, last_ns, lines, raw_bytes, size, ranks, sealed)
  SELECT t.id, t.voice, o.namespace, t.uid, t.uid || '/' || t.file, t.first_ns, t.last_ns, t.lines, t.raw_bytes,
  t.size, t.ranks, t.sealed FROM chunks t JOIN owners o ON o.uid=t.uid ORDER BY t.id;
DROP TABLE chunks;
ALTER TABLE new_chunks RENAME TO chunks;
CREATE INDEX chunks_of ON chunks (voice, id);
CREATE INDEX chunks_by_job ON chunks (namespace, uid);
CREATE INDEX chunks_by_age ON chunks (last_ns);
CREATE TABLE new_gaps (
  namespace TEXT NOT NULL, uid TEXT NOT NULL, voice INTEGER NOT NULL, first_ns INTEGER NOT NULL,
  last_ns INTEGER NOT NULL, reason TEXT NOT NULL, gap BLOB NOT NULL
) STRICT;
INSERT INTO new_gaps SELECT o.namespace, t.uid, t.voice, t.first_ns, t.last_ns, t.reason, t.gap
  FROM gaps t JOIN owners o ON o.uid=t.uid;
DROP TABLE gaps;
ALTER TABLE new_gaps RENAME TO gaps;
CREATE INDEX gaps_of ON gaps (namespace, uid, first_ns);
CREATE TABLE new_tallies (
  namespace TEXT NOT NULL, uid TEXT NOT NULL, attempt INTEGER NOT NULL, worker INTEGER NOT NULL,
  first REAL NOT NULL, last REAL NOT NULL, cpu_seconds REAL NOT NULL, byte_seconds REAL NOT NULL,
  gpu_seconds REAL NOT NULL, peak_bytes INTEGER NOT NULL, samples INTEGER NOT NULL,
  PRIMARY KEY (namespace, uid, attempt, worker)
) STRICT, WITHOUT ROWID;
INSERT INTO new_tallies SELECT o.namespace, t.uid, t.attempt, t.worker, t.first, t.last, t.cpu_seconds,
  t.byte_seconds, t.gpu_seconds, t.peak_bytes, t.samples FROM tallies t JOIN owners o ON o.uid=t.uid;
DROP TABLE tallies;
ALTER TABLE new_tallies RENAME TO tallies;
CREATE TABLE new_accounts (
  namespace TEXT NOT NULL, uid TEXT NOT NULL, name TEXT NOT NULL, owner TEXT NOT NULL, phase TEXT NOT NULL,
  queue TEXT NOT NULL, cause TEXT NOT NULL, program TEXT NOT NULL, created REAL NOT NULL, ended REAL,
  labels TEXT NOT NULL, account BLOB NOT NULL,
  PRIMARY KEY (namespace, uid)
) STRICT;
INSERT INTO new_accounts SELECT o.namespace, t.uid, o.name, t.owner, t.phase, t.queue, t.cause, t.program, t.created,
  t.ended, t.labels, t.account FROM accounts t JOIN owners o ON o.uid=t.uid;
DROP TABLE accounts;
ALTER TABLE new_accounts RENAME TO accounts;
CREATE INDEX accounts_by_time ON accounts (created, uid, namespace);
CREATE INDEX accounts_of ON accounts (namespace, created, uid);
CREATE INDEX accounts_by_owner ON accounts (owner, created, uid, namespace);
CREATE INDEX accounts_by_program ON accounts (program, created, uid, namespace);
CREATE INDEX accounts_by_end ON accounts (ended);
DROP TABLE owners;
""",
    """
CREATE TABLE attempts (
  namespace TEXT NOT NULL, uid TEXT NOT NULL, attempt INTEGER NOT NULL, state BLOB NOT NULL,
  PRIMARY KEY (namespace, uid, attempt)
) STRICT, WITHOUT ROWID;
""",
)
VERSION = len(_MIGRATIONS)
RECORD_TABLES = (
    *("moments", "events", "facts", "samples", "gaps", "chunks", "voices", "tallies", "attempts"),
    "jobs",
)
TABLES = (*RECORD_TABLES, "accounts")


def migrate(db: Any, version: int) -> None:
    """Migrate from a version to the newest, within the caller's transaction."""
    for step in _MIGRATIONS[version:VERSION]:
        for statement in filter(str.strip, step.split(";\n")):
            db.execute(statement)
    for number, fill in _BACKFILLS.items():
        if version < number:
            fill(db)


def _backfill_accounts(db: Any) -> None:
    # `account_store` is imported when a database is migrated, not whenever one is opened.
    from mpijob.history import account_store

    account_store.backfill(db)


# Data of a newer version that is computed from the data of the older one.
_BACKFILLS: dict[int, Callable[[Any], None]] = {2: _backfill_accounts, 4: layout.backfill}
