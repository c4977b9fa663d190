"""The record of jobs: what is written down is found again, bounded, and forgotten in time."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.unit.history_support import a_key, a_spec, a_state, archived, encoded, said, texts

from mpijob.codec import decode
from mpijob.errors import BackendError, Conflict, InvalidJob
from mpijob.history import log_writer as capturing
from mpijob.history import retention
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader, open_archive
from mpijob.history.records import Fact
from mpijob.history.retention import RetentionDays, RetentionSettings
from mpijob.history.storage import postgres, schema
from mpijob.model import Event, JobKey, JobRef, Phase, Sample, Scope
from mpijob.model.spec.job import Retention
from mpijob.model.status.accounts import AccountQuery
from mpijob.settings import KeepSetting, Settings, history_directory

archive = pytest.fixture(archived)
DAY = 86_400.0
REF = JobRef("team", "bert")


# -- what was --------------------------------------------------------------------------------------
@pytest.mark.req("C-history")
def test_a_job_is_remembered_with_everything_that_was_written_down(archive: Archive) -> None:
    spec = a_spec(labels={"team": "cv"})
    fact = Fact("pod", "bert-0", 1.0, {"node": "n1", "exit": 3})
    archive.put_job(a_state(phase=Phase.PENDING), now=10.0, spec=encoded(spec), facts=[fact])
    event = Event(11.0, "Running", "MPI initialization completed")
    archive.put_job(a_state(phase=Phase.RUNNING), now=11.0, events=[event])
    archive.put_job(a_state(phase=Phase.RUNNING), now=12.0, events=[event])
    archive.add_samples(a_key(), [Sample(11.5, 0, 0.5, 1024)])
    found = ArchiveReader(archive)
    record = found.record(REF)
    assert record is not None
    assert [(moment.time, moment.phase) for moment in record.moments] == [
        (10.0, "Pending"),
        (11.0, "Running"),
    ]
    assert (record.first_seen, record.last_seen, record.facts) == (10.0, 12.0, (fact,))
    assert found.spec(REF) == spec
    assert [one.message for one in found.events(REF)] == ["MPI initialization completed"]
    assert found.samples(REF) == (Sample(11.5, 0, 0.5, 1024),)


@pytest.mark.thorough
@pytest.mark.parametrize("after", ["abc", "-1", "9" * 23])
def test_what_is_no_place_in_the_list_of_deleted_jobs_is_refused(tmp_path: Path, after: str) -> None:
    with pytest.raises(InvalidJob, match=f"'{after}' is not a valid continue token"):
        ArchiveReader(Archive(str(tmp_path))).list(Scope(after=after))


def test_a_job_deleted_before_its_end_was_seen_ended_by_that(archive: Archive) -> None:
    archive.put_job(a_state(), now=1.0)
    archive.mark_deleted(a_key(), 5.0)
    archive.mark_deleted(a_key(), 9.0)  # a second time changes nothing
    state = ArchiveReader(archive).state(REF)
    assert state is not None
    assert (state.phase, state.deleted, state.finished) == (Phase.CANCELLED, 5.0, 5.0)
    assert "while it was Running" in state.message


def test_a_job_that_ended_keeps_its_end_when_it_is_deleted(archive: Archive) -> None:
    archive.put_job(a_state(phase=Phase.FAILED, finished=3.0, message="rank 1"), now=3.0)
    archive.mark_deleted(a_key(), 5.0)
    state = ArchiveReader(archive).state(REF)
    assert state is not None
    assert (state.phase, state.finished, state.deleted, state.message) == (Phase.FAILED, 3.0, 5.0, "rank 1")


def test_a_job_that_nobody_saw_go_is_told_as_it_was_last_seen(archive: Archive) -> None:
    archive.put_job(a_state(), now=7.0)
    state = ArchiveReader(archive).state(REF)
    assert state is not None
    assert state.deleted == 7.0
    assert "last seen Running" in state.message


def test_of_several_jobs_of_one_name_the_newest_is_meant(archive: Archive) -> None:
    for number, uid in enumerate(("u1", "u2", "u3")):
        archive.put_job(a_state(uid=uid, created=float(number)), now=5.0)
        archive.mark_deleted(a_key(uid), 6.0 + number)
    found = ArchiveReader(archive)
    newest, oldest = found.state(REF), found.state(JobRef("team", "bert", "u1"))
    assert newest is not None
    assert oldest is not None
    assert (newest.ref.uid, oldest.ref.uid) == ("u3", "u1")
    assert [state.ref.uid for state in found.list(Scope(namespace="team", limit=2)).items] == ["u3", "u2"]
    assert found.list(Scope(namespace="other")).total == 0


@pytest.mark.thorough
@pytest.mark.parametrize("chosen", [{}, {"text": "ber"}, {"owner": "jane"}, {"selector": "team=cv"}])
def test_pages_of_deleted_jobs_neither_repeat_nor_hide_while_others_are_deleted(
    archive: Archive, chosen: dict[str, str]
) -> None:
    def deleted(uid: str, when: float, name: str = "bert", **fields: Any) -> None:
        archive.put_job(a_state(name, uid, **{"owner": "jane", "labels": {"team": "cv"}} | fields), now=5.0)
        archive.mark_deleted(a_key(uid), when)

    deleted("other", 6.5, "BERT", owner="joe", labels={})
    for number in range(5):
        deleted(f"u{number}", 6.0 + number // 2)  # some in the same moment
    found, seen, after = ArchiveReader(archive), list[str](), ""
    for number in range(3):
        page = found.list(Scope(namespace="team", limit=2, after=after, **chosen))  # type: ignore[arg-type]  # words
        seen += [state.ref.uid for state in page.items]
        assert page.total == 5 + (not chosen) + number
        after = page.after
        deleted(f"late{number}", 20.0)
    wanted = ["u4", "u3", "u2", *(["other"] if not chosen else []), "u1", "u0"]
    assert (seen, after) == (wanted, "")


def test_a_page_of_deleted_jobs_reads_no_others(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        archive.put_job(a_state(uid=f"u{number}"), now=5.0)
        archive.mark_deleted(a_key(f"u{number}"), 6.0 + number)
    read = list[Any]()

    def watched(blob: bytes, kind: type[Any]) -> Any:
        read.append(kind)
        return decode(blob, kind)

    monkeypatch.setattr("mpijob.history.archive_reader.codec.decode", watched)
    page = ArchiveReader(archive).list(Scope(namespace="team", limit=3))
    assert (len(page.items), page.total, len(read)) == (3, 20, 3)


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize("cursor", ["2", "x:1", "1.0:x", "1.0:", ":"])
def test_a_cursor_that_is_none_is_refused(archive: Archive, cursor: str) -> None:
    with pytest.raises(InvalidJob, match=f"'{cursor}' is not a valid continue token"):
        ArchiveReader(archive).list(Scope(namespace="team", after=cursor))


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize("cursor", ["nan:1", "-inf:1", f"1:{'9' * 30}", f"1:-{'9' * 30}"])
def test_a_cursor_that_nobody_gave_shows_nothing(archive: Archive, cursor: str) -> None:
    archive.put_job(a_state(), now=5.0)
    archive.mark_deleted(a_key(), 6.0)
    assert ArchiveReader(archive).list(Scope(namespace="team", after=cursor)).items == ()


def test_a_place_without_a_record_has_no_past(tmp_path: Path) -> None:
    assert open_archive(str(tmp_path)) is None


@pytest.mark.security
def test_the_record_is_closed_to_other_users(archive: Archive) -> None:
    said(archive, 3).end()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in Path(archive.directory).rglob("*")}
    assert modes <= {0o600, 0o700}
    assert stat.S_IMODE(os.stat(archive.directory).st_mode) == 0o700


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize("name", ["../../etc", "/etc", "..", "a/b", "", ".", "_x", "a" * 500, "ü", "\udcff"])
def test_a_uid_or_namespace_that_somebody_wrote_cannot_leave_the_directory(
    archive: Archive, name: str
) -> None:
    logs = os.path.realpath(archive.logs)
    for key in (JobKey("team", name), JobKey(name, "u1"), JobKey(name, name)):
        folder = os.path.realpath(archive.job_directory(key))
        assert os.path.dirname(os.path.dirname(folder)) == logs
        file = archive.new_file(key)
        assert os.path.dirname(os.path.realpath(archive.chunk_path(file))) == folder
    assert len({archive.job_directory(JobKey("team", one)) for one in (name, "x", "u1", f"{name}.")}) == 4


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize("file", ["../history.db", "/etc/passwd", "a/../../x", "..", "", "a//b", "a/./b"])
def test_a_file_that_a_row_names_lies_below_the_logs(archive: Archive, file: str) -> None:
    logs = os.path.realpath(archive.logs)
    assert os.path.realpath(archive.chunk_path(file)).startswith(f"{logs}{os.sep}")


# -- how long --------------------------------------------------------------------------------------
@pytest.mark.req("US2-3", "C-history")
def test_logs_go_after_7_days_and_records_after_30(archive: Archive) -> None:
    archive.put_job(a_state(phase=Phase.SUCCEEDED, finished=0.5), now=0.5)
    said(archive, 3).end()
    found = ArchiveReader(archive)
    retention.apply_retention(archive, RetentionSettings(), 6.9 * DAY)
    assert len(texts(found)) == 3
    retention.apply_retention(archive, RetentionSettings(), 7.1 * DAY)
    assert texts(found) == ["mpijob: lines are missing here: logs are kept for 7 days"]
    assert not os.path.exists(archive.job_directory(a_key()))
    retention.apply_retention(archive, RetentionSettings(), 30.1 * DAY)
    assert found.state(REF) is None
    assert (_rows(archive), [one.ref.uid for one in found.accounts(AccountQuery())]) == (1, ["u1"])
    retention.apply_retention(archive, RetentionSettings(), 401 * DAY)
    assert _rows(archive) == 0  # what it used is kept longest, not for ever


@pytest.mark.parametrize(
    ("set_days", "own", "kept"),
    [
        (None, Retention(), RetentionDays(7, 30)),
        (None, Retention(logs_days=1, record_days=2), RetentionDays(1, 2)),
        (RetentionDays(14, 90), Retention(), RetentionDays(14, 90)),
        (RetentionDays(14, 90), Retention(logs_days=1), RetentionDays(1, 90)),
        (RetentionDays(2, 3), Retention(logs_days=20, record_days=60), RetentionDays(2, 3)),
    ],
)
def test_a_namespace_has_its_own_days_and_a_job_may_ask_for_fewer(
    set_days: RetentionDays | None, own: Retention, kept: RetentionDays
) -> None:
    policy = RetentionSettings({"team": set_days} if set_days else {})
    assert policy.days_for("team", a_spec(retention=own)) == kept


def test_days_and_room_come_from_the_settings() -> None:
    policy = RetentionSettings.from_settings(
        Settings(keep={"*": KeepSetting(logs_days=1, record_days=2)}, history_bytes="1Mi")
    )
    assert policy.days_for("any", None) == RetentionDays(1, 2)
    assert policy.max_bytes == 1 << 20


def test_when_there_is_no_room_the_oldest_lines_go_first_and_that_is_told(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "BUFFER_BYTES", 400)
    monkeypatch.setattr(capturing, "CHUNK_BYTES", 2000)
    archive.put_job(a_state(), now=1.0)
    capture = said(archive, 300)
    capture.end()
    size = sum(chunk.size for chunk in archive.chunks(capture.source.id))
    retention.apply_retention(archive, RetentionSettings(max_bytes=size // 2), 2.0)
    left = archive.chunks(capture.source.id)
    assert 0 < sum(chunk.size for chunk in left) <= size // 2
    first, *rest = texts(ArchiveReader(archive))
    assert first.startswith("mpijob: lines are missing here: the history exceeded")
    assert rest[-1] == "line 299"
    assert len(archive.gaps(a_key())) == 1
    assert len(os.listdir(archive.job_directory(a_key()))) == len(left)


def test_chunks_of_a_job_that_was_erased_while_it_spoke_make_room_too(archive: Archive) -> None:
    archive.put_job(a_state(phase=Phase.SUCCEEDED, finished=1.0), now=1.0)
    capture = said(archive, 300)
    retention.erase(archive, (a_key(),))
    capture.end()
    assert archive.chunks(capture.source.id)
    retention.apply_retention(archive, RetentionSettings(max_bytes=1), 2.0)
    assert not archive.chunks(capture.source.id)


@pytest.mark.security
def test_what_is_forgotten_is_in_no_file_any_more(archive: Archive) -> None:
    archive.put_job(a_state(description="a-very-secret-word"), now=1.0, spec=encoded(a_spec()))
    said(archive, 3).end()
    assert b"a-very-secret-word" in _bytes(archive)
    assert ArchiveReader(archive).delete_job(REF) == 1
    assert b"a-very-secret-word" not in _bytes(archive)
    assert _rows(archive) == 0
    assert os.listdir(archive.logs) == []
    assert ArchiveReader(archive).delete_job(REF) == 0


def test_files_that_nobody_knows_are_removed_when_they_are_old(archive: Archive) -> None:
    archive.put_job(a_state(), now=1.0)
    said(archive, 3).end()
    stray, nobodys = (
        Path(archive.job_directory(a_key())) / "stray.log",
        Path(archive.job_directory(a_key("u9"))),
    )
    stray.write_bytes(b"x")
    nobodys.mkdir()
    retention.apply_retention(archive, RetentionSettings(), stray.stat().st_mtime + 10)
    assert stray.exists()
    retention.apply_retention(archive, RetentionSettings(), stray.stat().st_mtime + 4000)
    assert not stray.exists()
    assert not nobodys.exists()
    assert len(texts(ArchiveReader(archive))) == 3


# -- the directory ---------------------------------------------------------------------------------
def test_two_recorders_on_one_directory_exclude_each_other(archive: Archive) -> None:
    with archive.exclusive(), pytest.raises(Conflict, match=str(os.getpid())), archive.exclusive():
        pass
    with archive.exclusive():
        pass


def test_a_newer_format_is_refused_and_left_alone(archive: Archive) -> None:
    path = os.path.join(archive.directory, "history.db")
    archive.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(BackendError, match="format 99"):
        Archive(os.path.dirname(path))


def test_an_older_format_is_brought_forward_with_what_is_in_it(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.put_job(a_state(), now=1.0)
    archive.close()
    monkeypatch.setattr(schema, "_MIGRATIONS", (*schema._MIGRATIONS, "ALTER TABLE jobs ADD COLUMN cost REAL"))
    monkeypatch.setattr(schema, "VERSION", len(schema._MIGRATIONS))
    newer = Archive(archive.directory)
    assert newer.read("SELECT uid, cost FROM jobs") == [("u1", None)]
    assert newer.read("PRAGMA user_version") == [(len(schema._MIGRATIONS),)]


def test_each_cluster_has_a_directory_of_its_own_unless_one_is_set() -> None:
    home = Settings(home="/h")
    assert history_directory(home, "local") == "/h/history/local"
    assert history_directory(home, "../kind/x") == "/h/history/_kind_x"
    chosen = Settings(home="/h", history="/srv/record")
    assert history_directory(chosen, "prod") == "/srv/record"
    assert history_directory(chosen, "local") == "/h/history/local"


def _rows(archive: Archive) -> int:
    return sum(int(archive.read(f"SELECT count(*) FROM {table}")[0][0]) for table in schema.TABLES)


def _bytes(archive: Archive) -> bytes:
    return b"".join(path.read_bytes() for path in Path(archive.directory).rglob("*") if path.is_file())


def test_a_question_mark_in_a_literal_is_never_taken_for_a_placeholder() -> None:
    assert postgres.translate("SELECT a FROM t WHERE b=? AND c='it''s'").endswith("b=%s AND c='it''s'")
    with pytest.raises(ValueError, match="pass it as a parameter"):
        postgres.translate("SELECT a FROM t WHERE b='why?' AND c=?")
