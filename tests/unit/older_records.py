"""A record as format 3 had it, keyed by uid alone: rows, and files in directories by uid. For SQLite and PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.history_support import START_NS, line

from mpijob.accounting import build
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.records import Fact, Gap, Transition
from mpijob.history.storage import chunks, database, schema
from mpijob.model import Event, JobRef, JobState, LogQuery, MPIJob, Phase, Scope
from mpijob.model.status.accounts import AccountQuery

DONE = JobRef("team-a", "done", "u1")
ODD = JobRef("team-b", "odd", "we/ird")  # no name for a directory
GOING = JobRef("team-b", "going", "u3")
PAID = JobRef("team-a", "paid", "u4")  # its record is gone, its account is kept
NOBODYS = "nobody"  # rows that a killed writer left
FOLDERS = {"u1": "u1", "we/ird": "x" + b"we/ird".hex(), "u3": "u3", NOBODYS: NOBODYS}
LINES = 20


def write(directory: Path, address: str = "") -> dict[str, list[str]]:
    """Write such a record; return the files of each uid, below the directory of logs."""
    with pytest.MonkeyPatch.context() as older:
        older.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:3])
        older.setattr(schema, "_BACKFILLS", {})
        older.setattr(schema, "VERSION", 3)
        directory.mkdir(mode=0o700, exist_ok=True)
        db = database.open_database(str(directory / "history.db"), address=address)
    db.execute("BEGIN IMMEDIATE")
    for ref, phase in ((DONE, Phase.SUCCEEDED), (ODD, Phase.FAILED), (GOING, Phase.RUNNING)):
        _job(db, ref, phase)
    _account(db, state_of(PAID, Phase.SUCCEEDED))
    files = {ref.uid: _lines(db, directory, ref.uid, ended=ref != GOING) for ref in (DONE, ODD, GOING)}
    files[NOBODYS] = _lines(db, directory, NOBODYS, ended=True)
    db.execute(
        "INSERT INTO moments VALUES (?,?,?)", (NOBODYS, 1.0, msgspec.json.encode(Transition(1.0, "Running")))
    )
    db.execute("INSERT INTO sessions (began, beat, ended) VALUES (1.0, 2.0, 3.0)")
    db.execute("COMMIT")
    db.close()
    return files


def state_of(ref: JobRef, phase: Phase) -> JobState:
    ended = 60.0 if phase.final else None
    deleted = 70.0 if ref == DONE else None
    return JobState(
        ref=ref, phase=phase, owner="jane", created=1.0, started=2.0, finished=ended, deleted=deleted
    )


def spec_of(ref: JobRef) -> MPIJob:
    return MPIJob(name=ref.name, namespace=ref.namespace, command=("echo", ref.name))


def _job(db: Any, ref: JobRef, phase: Phase) -> None:
    state = state_of(ref, phase)
    db.execute(
        "INSERT INTO jobs (uid, namespace, name, phase, created, ended, deleted, first_seen, last_seen, state, spec)"
        " VALUES (?,?,?,?,?,?,?,?,?,?,?)",
        (ref.uid, ref.namespace, ref.name, phase.value, 1.0, state.finished, state.deleted, 1.0, 61.0,
         msgspec.json.encode(state), msgspec.json.encode(spec_of(ref))),
    )  # fmt: skip
    moment = Transition(2.0, phase.value)
    event = Event(3.0, "Running", f"{ref.name} runs")
    fact = Fact("pod", "p", 4.0, {"of": ref.name})
    gap = Gap(first_ns=1, last_ns=2, reason=f"{ref.name} lost")
    encode = msgspec.json.encode
    db.execute("INSERT INTO moments VALUES (?,?,?)", (ref.uid, 2.0, encode(moment)))
    db.execute(
        "INSERT INTO events VALUES (?,?,?,?,?)", (ref.uid, 3.0, "Running", event.message, encode(event))
    )
    db.execute("INSERT INTO facts VALUES (?,?,?,?)", (ref.uid, "pod", "p", encode(fact)))
    db.execute("INSERT INTO gaps VALUES (?,?,?,?,?,?)", (ref.uid, 0, 1, 2, gap.reason, encode(gap)))
    db.execute("INSERT INTO samples VALUES (?,1,0,5.0,0.5,1024,1.0,7,0.25,9.0)", (ref.uid,))
    db.execute("INSERT INTO tallies VALUES (?,1,0,4.0,5.0,0.5,1024.0,1.0,1024,1)", (ref.uid,))
    _account(db, state)


def _account(db: Any, state: JobState) -> None:
    account = build.account(state, spec_of(state.ref), now=61.0)
    db.execute(
        "INSERT INTO accounts (uid, namespace, name, owner, phase, queue, cause, program, created, ended, labels,"
        " account) VALUES (?,?,?,?,?,'','',?,?,?,'{}',?)",
        (state.ref.uid, state.ref.namespace, state.ref.name, account.owner, account.phase.value, account.program,
         account.created, account.ended, msgspec.json.encode(account)),
    )  # fmt: skip


def _lines(db: Any, directory: Path, uid: str, *, ended: bool) -> list[str]:
    """Write two chunks of a job, of which the second is open while the job goes on."""
    db.execute(
        "INSERT INTO voices (uid, attempt, source, origin, role, worker, form, family, tagged, ended)"
        " VALUES (?,1,'pod-0','pod.0','worker',0,'cri','',0,?)", (uid, int(ended))
    )  # fmt: skip
    voice = db.execute("SELECT id FROM voices WHERE uid=?", (uid,)).fetchone()[0]
    folder = directory / "logs" / FOLDERS[uid]
    folder.mkdir(parents=True, mode=0o700)
    files = []
    for half in range(2):
        name = f"{os.urandom(8).hex()}.log"
        said = b"".join(line(half * LINES // 2 + number) for number in range(LINES // 2))
        size = chunks.append(str(folder / name), 0, chunks.frame(said))
        first = START_NS + half * LINES // 2 * 1_000_000
        db.execute(
            "INSERT INTO chunks (voice, uid, file, first_ns, last_ns, lines, raw_bytes, size, ranks, sealed)"
            " VALUES (?,?,?,?,?,?,?,?,'',?)",
            (voice, uid, name, first, first + 9_000_000, LINES // 2, len(said), size, int(ended or half == 0)),
        )  # fmt: skip
        files.append(f"{FOLDERS[uid]}/{name}")
    return files


def texts(archive: Archive, ref: JobRef) -> list[str]:
    return [one.text.decode() for one in ArchiveReader(archive).logs(ref, LogQuery())]


def check_all_is_found(archive: Archive) -> None:
    """Assert that everything but what was nobody's is there, each of it in its own job."""
    past = ArchiveReader(archive)
    for ref, phase in ((DONE, Phase.SUCCEEDED), (ODD, Phase.FAILED), (GOING, Phase.RUNNING)):
        record = past.record(ref)
        assert record is not None
        assert archive.state(ref.key) == state_of(ref, phase)
        assert [moment.phase for moment in record.moments] == [phase.value]
        assert [fact.data for fact in record.facts] == [{"of": ref.name}]
        assert [gap.reason for gap in record.gaps] == [f"{ref.name} lost"]
        assert past.spec(ref) == spec_of(ref)
        assert [event.message for event in past.events(ref)] == [f"{ref.name} runs"]
        assert [(one.cpu_cores, one.gpus, one.io_wait, one.network) for one in past.samples(ref)] == [
            (0.5, 1.0, 0.25, 9.0)
        ]
        assert texts(archive, ref)[1:] == [f"line {number}" for number in range(LINES)]
    assert [state.ref for state in past.list(Scope(namespace="team-a")).items] == [DONE]
    assert [state.ref for state in past.unfinished_jobs()] == [GOING]
    accounts = {one.ref: one for one in past.accounts(AccountQuery())}
    assert accounts.keys() == {DONE, ODD, GOING, PAID}
    assert [one.ref for one in past.accounts(AccountQuery(namespace="team-a", names=("paid",)))] == [PAID]
    for table in schema.TABLES:
        assert archive.read(f"SELECT count(*) FROM {table} WHERE uid=?", NOBODYS) == [(0,)]
    assert archive.read("SELECT began, beat, ended FROM sessions") == [(1.0, 2.0, 3.0)]
