"""A record that an earlier release wrote: everything in it is found, goes on, and is erased where it is."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tarfile
from pathlib import Path
from typing import cast

import pytest
from tests.unit.history_support import line
from tests.unit.older_records import (
    DONE,
    FOLDERS,
    GOING,
    LINES,
    NOBODYS,
    ODD,
    PAID,
    check_all_is_found,
    state_of,
    texts,
    write,
)

from mpijob.errors import BackendError
from mpijob.history import backup, retention
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.log_writer import Capture
from mpijob.history.records import LogSource
from mpijob.history.retention import RetentionDays, RetentionSettings
from mpijob.history.storage import layout, schema, tiering
from mpijob.history.storage.s3 import ObjectStore
from mpijob.model import JobRef, Phase, Scope
from mpijob.model.status.accounts import AccountQuery

pytestmark = pytest.mark.req("C-history")
DAY = 86_400.0
CLAIMED = JobRef("team-c", "claimed", DONE.uid)


class Older:
    """A record of format 3, opened by this release; `files` are those of each uid."""

    def __init__(self, directory: Path) -> None:
        self.files = write(directory)
        self.archive = Archive(str(directory))

    def on_disk(self) -> set[str]:
        logs = Path(self.archive.logs)
        return {str(path.relative_to(logs)) for path in logs.rglob("*") if path.is_file()}


@pytest.fixture
def older(tmp_path: Path) -> Older:
    return Older(tmp_path / "history")


def test_everything_in_a_record_of_the_format_before_is_found(older: Older) -> None:
    check_all_is_found(older.archive)
    named = {file for (file,) in older.archive.read("SELECT file FROM chunks")}
    assert named == {file for uid, files in older.files.items() for file in files if uid != NOBODYS}
    assert older.archive.read("PRAGMA user_version") == [(schema.VERSION,)]
    assert older.archive.read(
        "SELECT count(*) FROM sqlite_master WHERE name LIKE 'new_%' OR name='owners'"
    ) == [(0,)]


def test_a_record_that_was_brought_forward_has_the_tables_of_a_new_one(older: Older, tmp_path: Path) -> None:
    wanted = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    assert older.archive.read(wanted) == Archive(str(tmp_path / "new")).read(wanted)


def test_a_voice_of_an_older_record_goes_on_where_it_was(older: Older) -> None:
    archive = older.archive
    (voice,) = archive.sources(GOING.key)
    capture = Capture(archive, voice)
    assert capture.position().repeats == 1
    for number in range(LINES, LINES + 5):
        capture.write(line(number))
    capture.flush()
    assert [chunk.file for chunk in archive.chunks(voice.id)] == older.files[GOING.uid]  # the open one grew
    capture.end()
    assert texts(archive, GOING)[1:] == [f"line {number}" for number in range(LINES + 5)]
    other = Capture(archive, LogSource(key=GOING.key, source="pod-1", origin="pod.1"))
    other.write(line(100))
    other.end()
    (chunk,) = archive.chunks(other.source.id)
    assert os.path.dirname(chunk.file) == layout.job_directory(GOING.key)
    archive.put_job(state_of(CLAIMED, Phase.RUNNING), now=99.0)
    assert ArchiveReader(archive).state(CLAIMED) is not None


@pytest.mark.security
@pytest.mark.hostile
def test_a_job_of_another_namespace_with_the_uid_of_an_older_record_reaches_nothing_of_it(
    older: Older,
) -> None:
    archive = older.archive
    assert ArchiveReader(archive).delete_job(CLAIMED) == 0
    archive.put_job(state_of(CLAIMED, Phase.SUCCEEDED), now=99.0)
    capture = Capture(archive, LogSource(key=CLAIMED.key, source="pod-0", origin="pod.0"))
    capture.write(line(0, "mine"))
    capture.end()
    assert texts(archive, CLAIMED) == ["mine"]
    assert ArchiveReader(archive).delete_job(CLAIMED) == 1
    check_all_is_found(archive)


@pytest.mark.parametrize("ref", [DONE, ODD], ids=str)
def test_forgetting_removes_the_older_files_of_that_job_alone(older: Older, ref: JobRef) -> None:
    leftover = Path(older.archive.logs) / FOLDERS[ref.uid] / "of-a-killed-writer.log"
    leftover.write_bytes(b"x")
    before = older.on_disk()
    assert ArchiveReader(older.archive).delete_job(ref) == 1
    own = {*older.files[ref.uid], str(leftover.relative_to(older.archive.logs))}
    assert older.on_disk() == before - own
    assert not leftover.parent.exists()
    assert ArchiveReader(older.archive).state(ref) is None
    assert ref not in [one.ref for one in ArchiveReader(older.archive).accounts(AccountQuery())]


def test_forgetting_leaves_what_a_namespace_of_that_name_has_in_the_older_directory(older: Older) -> None:
    """A directory of the older layout may have the name of a namespace."""
    archive, namesake = older.archive, JobRef(DONE.uid, "x", "y")
    archive.put_job(state_of(namesake, Phase.RUNNING), now=99.0)
    capture = Capture(archive, LogSource(key=namesake.key, source="pod-0", origin="pod.0"))
    capture.write(line(0, "mine"))
    capture.flush()
    assert ArchiveReader(archive).delete_job(DONE) == 1
    capture.write(line(1, "too"))
    capture.end()
    assert texts(archive, namesake) == ["mine", "too"]


def test_days_and_accounts_are_kept_of_older_records_too(older: Older) -> None:
    retention.apply_retention(
        older.archive,
        RetentionSettings({"team-a": RetentionDays(1, 30, 400), "*": RetentionDays(100, 100, 400)}),
        60.0 + 2 * DAY,
    )
    assert texts(older.archive, DONE)[1:] == ["mpijob: lines are missing here: logs are kept for 1 days"]
    assert not (Path(older.archive.logs) / "u1").exists()
    assert len(texts(older.archive, ODD)) == LINES + 1
    assert ArchiveReader(older.archive).delete_job(PAID) == 1
    assert PAID not in [one.ref for one in ArchiveReader(older.archive).accounts(AccountQuery())]


def test_files_that_nobody_knows_are_found_in_both_layouts(older: Older) -> None:
    archive, logs = older.archive, Path(older.archive.logs)
    other = Capture(archive, LogSource(key=GOING.key, source="pod-1", origin="pod.1"))
    other.write(line(100))
    other.end()
    known = older.on_disk() - {*older.files[NOBODYS]}
    strays = [
        logs / "u1" / "s.log",
        logs / layout.job_directory(GOING.key) / "s.log",
        logs / "team-b" / "u9" / "s.log",
    ]
    for stray in strays:
        stray.parent.mkdir(exist_ok=True)
        stray.write_bytes(b"x")
    now = strays[-1].stat().st_mtime
    keep = RetentionSettings({"*": RetentionDays(10**6, 10**6, 10**6)})
    retention.apply_retention(archive, keep, now + 10)
    assert all(stray.exists() for stray in strays)
    retention.apply_retention(archive, keep, now + 4000)
    assert older.on_disk() == known
    assert not (logs / NOBODYS).exists()
    assert not (logs / "team-b" / "u9").exists()


class _Bucket:
    """An object store in memory."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> None:
        self.held[name] = content

    def get(self, name: str) -> bytes | None:
        return self.held.get(name)

    def remove(self, name: str) -> None:
        self.held.pop(name, None)


def test_objects_that_were_stored_by_uid_are_read_and_removed_by_their_names(older: Older) -> None:
    bucket, archive = _Bucket(), older.archive
    for uid in (DONE.uid, ODD.uid):
        for file in older.files[uid]:  # as the release before moved them
            bucket.put(file, (Path(archive.logs) / file).read_bytes())
        shutil.rmtree(Path(archive.logs) / FOLDERS[uid])
    archive.objects = cast(ObjectStore, bucket)
    check_all_is_found(archive)
    assert tiering.move_sealed(archive) == 1  # the sealed chunk of the job that goes on, by its older name
    assert bucket.held.keys() == {*older.files[DONE.uid], *older.files[ODD.uid], older.files[GOING.uid][0]}
    check_all_is_found(archive)
    assert ArchiveReader(archive).delete_job(DONE) == 1
    assert bucket.held.keys() == {*older.files[ODD.uid], older.files[GOING.uid][0]}
    assert not [
        name
        for name in os.listdir(os.path.join(archive.directory, "cache"))
        if f"u1/{name}" in older.files["u1"]
    ]


def test_a_page_that_was_begun_before_the_upgrade_goes_on(older: Older) -> None:
    found = [one.ref for one in ArchiveReader(older.archive).accounts(AccountQuery())]
    for place, ref in enumerate(found):
        cursor = f"1.0:{ref.uid}"  # as the release before wrote it
        assert [
            one.ref for one in ArchiveReader(older.archive).accounts(AccountQuery(after=cursor))
        ] == found[place + 1 :]


# -- in one file ------------------------------------------------------------------------------------
def test_a_backup_of_the_format_before_is_put_back_and_found(tmp_path: Path) -> None:
    write(tmp_path / "old")
    with tarfile.open(tmp_path / "old.tar", "w") as packed:  # as the release before packed it
        for path in sorted((tmp_path / "old").rglob("*")):
            if path.is_file() and path.suffix in (".db", ".log"):
                packed.add(path, str(path.relative_to(tmp_path / "old")))
    assert backup.restore(str(tmp_path / "old.tar"), str(tmp_path / "new")) == 3
    check_all_is_found(Archive(str(tmp_path / "new")))


def test_a_backup_of_files_in_both_layouts_is_put_back_and_found(older: Older, tmp_path: Path) -> None:
    capture = Capture(older.archive, LogSource(key=GOING.key, source="pod-1", origin="pod.1"))
    capture.write(line(100))
    capture.end()
    before = texts(older.archive, GOING)
    assert backup.backup(older.archive, str(tmp_path / "all.tar")) == 3
    with tarfile.open(tmp_path / "all.tar") as packed:
        assert {name.count("/") for name in packed.getnames()} == {0, 2, 3}
    assert backup.restore(str(tmp_path / "all.tar"), str(tmp_path / "new")) == 3
    again = Archive(str(tmp_path / "new"))
    assert texts(again, GOING) == before
    assert texts(again, DONE) == texts(older.archive, DONE)
    assert ArchiveReader(again).list(Scope(namespace="team-a")) == ArchiveReader(older.archive).list(
        Scope(namespace="team-a")
    )


def test_a_backup_of_a_newer_format_is_refused_by_its_number(
    older: Older, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup.backup(older.archive, str(tmp_path / "all.tar"))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION - 1)
    with pytest.raises(BackendError, match=f"format {schema.VERSION + 1}"):
        backup.restore(str(tmp_path / "all.tar"), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


# -- while it is brought forward --------------------------------------------------------------------
def test_a_step_that_fails_leaves_the_record_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "h")
    steps = (
        *schema._MIGRATIONS[:3],
        schema._MIGRATIONS[3].replace("DROP TABLE owners;", "DROP TABLE not_there;"),
    )
    with monkeypatch.context() as broken:
        broken.setattr(schema, "_MIGRATIONS", steps)
        with pytest.raises(BackendError):
            Archive(str(tmp_path / "h"))
    with sqlite3.connect(tmp_path / "h" / "history.db") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert db.execute("SELECT count(*) FROM jobs").fetchone() == (3,)
    check_all_is_found(Archive(str(tmp_path / "h")))


def test_a_writer_of_the_release_before_is_refused_and_writes_nothing(older: Older) -> None:
    """A recorder that was not stopped before the upgrade: what it writes must fail, never go to the wrong job."""
    before = (
        older.archive.read("SELECT count(*) FROM jobs"),
        older.archive.read("SELECT count(*) FROM chunks"),
    )
    with sqlite3.connect(os.path.join(older.archive.directory, "history.db")) as db:
        for statement in (
            "INSERT INTO jobs (uid, namespace, name, phase, created, first_seen, last_seen, state) VALUES"
            " ('u1','team-c','x','Running',1.0,1.0,1.0,x'00') ON CONFLICT (uid) DO UPDATE SET phase=excluded.phase",
            "INSERT INTO voices (uid, attempt, role, source, origin, form, family, tagged) VALUES"
            " ('u1',1,'worker','p','o','cri','',0) ON CONFLICT DO NOTHING",
            "INSERT INTO chunks (voice, uid, file, first_ns, last_ns, lines, raw_bytes, size, ranks, sealed)"
            " VALUES (1,'u1','f.log',1,1,1,1,1,'',0)",
            "INSERT INTO moments VALUES ('u1', 1.0, x'00')",
            "INSERT INTO events VALUES ('u1', 1.0, 'r', 'm', x'00') ON CONFLICT DO NOTHING",
            "INSERT INTO facts VALUES ('u1', 'k', 'n', x'00')",
            "INSERT INTO gaps VALUES ('u1', 0, 1, 1, 'r', x'00')",
            "INSERT INTO samples (uid, attempt, worker, time, cores, memory) VALUES ('u1',1,0,1.0,1.0,1)",
        ):
            with pytest.raises(sqlite3.Error):
                db.execute(statement)
    assert before == (
        older.archive.read("SELECT count(*) FROM jobs"),
        older.archive.read("SELECT count(*) FROM chunks"),
    )
