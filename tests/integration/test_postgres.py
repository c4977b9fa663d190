"""The record in a real PostgreSQL: what SQLite answers it answers too, and a server that is killed loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit import older_records
from tests.unit.history_support import a_key, a_spec, a_state, a_voice, line, texts

from mpijob.errors import BackendError, Finding, Unsupported
from mpijob.history import backup, retention
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.log_writer import Capture
from mpijob.history.recorder_sessions import Session
from mpijob.history.records import Fact, Gap, LogSource
from mpijob.history.storage import schema
from mpijob.model import Event, JobRef, JobState, LogQuery, Phase, Sample, Scope
from mpijob.model.status.accounts import AccountQuery

from .postgres_support import Server, serving

pytestmark = pytest.mark.engine
DAY = 86_400.0
REF = JobRef("team", "bert")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("pg") as one:
        yield one


_NUMBERS = iter(range(1000))


@pytest.fixture
def pair(server: Server, tmp_path: Path) -> tuple[Archive, Archive]:
    """Return the record in SQLite and in PostgreSQL."""
    address = server.database(f"db{next(_NUMBERS)}")
    return Archive(str(tmp_path / "a")), Archive(str(tmp_path / "b"), shared=True, database=address)


def _lived(archive: Archive) -> None:
    """Let jobs live in an archive."""
    session = Session(archive, 1.0)
    spec = msgspec.json.encode(a_spec(labels={"team": "cv"}))
    fact = Fact("pod", "bert-0", 1.0, {"node": "n1", "exit": 3})
    archive.put_job(
        a_state(phase=Phase.PENDING, labels={"team": "cv"}), now=10.0, spec=spec, facts=[fact, fact]
    )
    event = Event(11.0, "Running", "MPI \0 initialization completed")
    state = a_state(created=10.0, started=11.0, running=12.0, owner="jane", labels={"team": "cv"})
    archive.put_job(state, now=11.0, events=[event, event], unique_reasons=frozenset({"Running"}))
    archive.add_samples(a_key(), [Sample(20.0, 0, 0.5, 1 << 40), Sample(30.0, 0, 0.5, 1024, 1, 0.5, 7)])
    archive.add_samples(a_key(), [Sample(30.0, 0, 0.5, 1024)])
    capture = Capture(archive, archive.add_source(a_voice(tagged=True)))
    for number in range(3000):
        capture.write(line(number))
        if number % 700 == 0:
            capture.flush()
    capture.end()
    archive.add_gap(a_key(), Gap(first_ns=5, last_ns=9, reason="lost", source_id=1))
    archive.add_gap(a_key(), Gap(first_ns=9, last_ns=12, reason="lost", source_id=1))
    failed = (Finding("OOM_KILLED", "x"),)
    archive.put_job(
        a_state("bad", "u2", Phase.FAILED, finished=50.0, owner="joe", findings=failed, created=40.0),
        now=50.0,
    )
    archive.mark_deleted(a_key(), 100.0)
    session.heartbeat(2.0)
    session.end(3.0)


def _told(archive: Archive) -> list[Any]:
    past = ArchiveReader(archive)
    queries = (
        AccountQuery(), AccountQuery(owners=("joe",)), AccountQuery(selector="team=cv"),
        AccountQuery(phases=("Failed",)), AccountQuery(since=60.0), AccountQuery(until=45.0, by_end=True),
        AccountQuery(cause="OOM_KILLED"),
    )  # fmt: skip
    return [
        past.record(REF), past.spec(REF), past.samples(REF), past.state(REF), past.list(Scope(namespace="team")),
        texts(past), [[*past.accounts(query)] for query in queries], archive.gaps(a_key()),
        [one.message.replace("\0", "�") for one in past.events(REF)], [*past.unfinished_jobs()],
    ]  # fmt: skip


@pytest.mark.security
@pytest.mark.hostile
def test_both_databases_keep_jobs_of_two_namespaces_with_one_uid_apart(pair: tuple[Archive, Archive]) -> None:
    claimed = JobState(
        ref=JobRef("another", "mine", "u1"), phase=Phase.SUCCEEDED, created=10.0, finished=20.0
    )
    key = claimed.ref.key
    for archive in pair:
        _lived(archive)
        before, past = _told(archive), ArchiveReader(archive)
        archive.put_job(claimed, now=5.0)
        archive.add_samples(key, [Sample(20.0, 0, 4.0, 1024)])
        capture = Capture(archive, LogSource(key=key, source="pod-0", origin=""))
        capture.write(line(0, "mine"))
        capture.end()
        assert archive.state(key) == claimed
        assert [one.text for one in past.logs(claimed.ref, LogQuery())] == [b"mine"]
        (account,) = past.accounts(AccountQuery(namespace="another"))
        assert account.ref == claimed.ref
        assert account.core_hours_used * 3600 == pytest.approx(4.0)
        assert [past.record(REF), past.samples(REF), texts(past)] == [before[0], before[2], before[5]]
        assert past.delete_job(claimed.ref) == 1
        assert _told(archive) == before


@pytest.mark.req("C-history")
def test_both_databases_answer_the_same(pair: tuple[Archive, Archive]) -> None:
    for archive in pair:
        _lived(archive)
    assert _told(pair[1]) == _told(pair[0])
    for archive in pair:
        retention.apply_retention(archive, retention.RetentionSettings(), 100.0 + 8 * DAY)
    assert _told(pair[1]) == _told(pair[0])
    assert ArchiveReader(pair[1]).delete_job(REF) == 1
    assert ArchiveReader(pair[1]).state(REF) is None
    assert [one.ref.name for one in ArchiveReader(pair[1]).accounts(AccountQuery())] == ["bad"]
    with pytest.raises(Unsupported, match="PostgreSQL"):
        backup.backup(pair[1], "/nowhere")


@pytest.mark.req("C-history")
def test_a_database_of_an_older_format_is_brought_forward_with_what_is_in_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.database("older")
    monkeypatch.setattr(schema, "_BACKFILLS", {})
    Archive(str(tmp_path), database=address).put_job(a_state(owner="jane"), now=1.0)
    monkeypatch.setattr(
        schema, "_MIGRATIONS", (*schema._MIGRATIONS, "ALTER TABLE jobs ADD COLUMN price REAL")
    )
    monkeypatch.setattr(schema, "VERSION", len(schema._MIGRATIONS))
    newer = Archive(str(tmp_path), database=address)
    assert newer.read("SELECT uid, price FROM jobs") == [("u1", None)]
    monkeypatch.setattr(schema, "VERSION", 1)
    with pytest.raises(BackendError, match="newer mpijob"):
        Archive(str(tmp_path), database=address)


@pytest.mark.req("C-history")
def test_everything_in_a_database_of_the_format_before_is_found(server: Server, tmp_path: Path) -> None:
    address = server.database("before")
    files = older_records.write(tmp_path / "h", address)
    archive = Archive(str(tmp_path / "h"), database=address)
    older_records.check_all_is_found(archive)
    again = Archive(str(tmp_path / "h"), database=address)
    older_records.check_all_is_found(again)
    claimed = JobRef("team-c", "claimed", older_records.DONE.uid)
    archive.put_job(
        JobState(ref=claimed, phase=Phase.RUNNING), now=99.0
    )  # numbers go on behind those that were there
    capture = Capture(archive, LogSource(key=claimed.key, source="pod-0", origin="pod.0"))
    capture.write(line(0, "mine"))
    capture.end()
    assert older_records.texts(archive, claimed) == ["mine"]
    (voice,) = archive.sources(older_records.GOING.key)
    going = Capture(archive, voice)
    going.write(line(older_records.LINES))
    going.end()
    assert older_records.texts(archive, older_records.GOING)[-1] == f"line {older_records.LINES}"
    assert ArchiveReader(archive).delete_job(older_records.DONE) == 1
    logs = tmp_path / "h" / "logs"
    assert not [file for file in files[older_records.DONE.uid] if (logs / file).exists()]
    assert older_records.texts(archive, claimed) == ["mine"]
    tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'new_%' OR tablename='owners'"
    assert archive.read(tables) == [(0,)]


@pytest.mark.req("C-history")
def test_a_server_killed_while_lines_come_loses_nothing_that_was_promised(
    server: Server, tmp_path: Path
) -> None:
    archive = Archive(str(tmp_path), shared=True, database=server.database("killed"))
    archive.put_job(a_state(), now=1.0)
    capture = Capture(archive, archive.add_source(a_voice()))
    refused = 0
    for number in range(4000):
        capture.write(line(number))
        if number == 2000:
            server.kill()
        if number % 100 == 0:
            try:
                capture.flush()
            except BackendError:
                refused += 1
        if number == 3000:
            server.start()
    capture.end()
    assert refused > 0
    assert texts(ArchiveReader(archive)) == [f"line {number}" for number in range(4000)]


def test_an_address_where_nothing_listens_is_told(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot connect to the history database"):
        Archive(str(tmp_path), database="postgresql://test@127.0.0.1:1/none")
