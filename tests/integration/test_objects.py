"""Lines in an object store: a real server that speaks S3, nothing lost; stores that fail: `test_refusing_stores`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.history_support import a_state, a_voice, line, texts

from mpijob.errors import BackendError, InvalidJob, Unsupported
from mpijob.history import backup, retention
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.log_writer import Capture
from mpijob.history.records import LogSource
from mpijob.history.storage import tiering
from mpijob.history.storage.s3 import ObjectStore
from mpijob.model import JobRef, JobState, LogQuery, Phase
from mpijob.settings import ObjectsSetting

from .buckets_support import s3_server

pytestmark = pytest.mark.engine
DAY = 86_400.0


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server(bucket="lines") as server:
        yield server.endpoint


@pytest.fixture
def setting(endpoint: str, tmp_path: Path) -> ObjectsSetting:
    (tmp_path / "key").write_text("secret\n")
    return ObjectsSetting(endpoint, "lines", "record/a", "eu-central-1", "access", str(tmp_path / "key"))


@pytest.mark.req("C-history")
def test_sealed_lines_move_and_are_read_as_before(setting: ObjectsSetting, tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "h"), objects=ObjectStore(setting))
    archive.put_job(a_state(phase=Phase.SUCCEEDED, finished=1.0), now=1.0)
    capture = Capture(archive, archive.add_source(a_voice()))
    for number in range(3000):
        capture.write(line(number))
    capture.end()
    before = texts(ArchiveReader(archive))
    assert tiering.move_sealed(archive) == 1
    assert tiering.move_sealed(archive) == 0
    assert not list((tmp_path / "h" / "logs").rglob("*.log"))
    elsewhere = Archive(str(tmp_path / "h"), objects=ObjectStore(setting))
    assert texts(ArchiveReader(elsewhere)) == before
    assert texts(ArchiveReader(elsewhere)) == before  # from what was kept
    assert (
        Capture(elsewhere, archive.add_source(a_voice())).position().stamp
    )  # a recorder knows how far it got
    with pytest.raises(Unsupported, match="object store"):
        backup.backup(archive, str(tmp_path / "x.tar"))


@pytest.mark.security
@pytest.mark.hostile
def test_objects_of_two_namespaces_with_one_uid_are_apart(setting: ObjectsSetting, tmp_path: Path) -> None:
    store = ObjectStore(setting)
    archive = Archive(str(tmp_path / "h"), objects=store)
    refs = [JobRef("team-a", "a", "same"), JobRef("team-b", "b", "same")]
    for ref in refs:
        archive.put_job(JobState(ref=ref, phase=Phase.SUCCEEDED, finished=1.0), now=1.0)
        capture = Capture(archive, LogSource(key=ref.key, source="pod-0"))
        capture.write(line(1, ref.name))
        capture.end()
    assert tiering.move_sealed(archive) == 2
    names = [file for (file,) in archive.read("SELECT file FROM chunks ORDER BY id")]
    assert [os.path.dirname(name) for name in names] == ["team-a/same", "team-b/same"]
    past = ArchiveReader(archive)
    assert [[one.text for one in past.logs(ref, LogQuery())] for ref in refs] == [[b"a"], [b"b"]]
    assert past.delete_job(refs[0]) == 1
    assert [store.get(name) is None for name in names] == [True, False]
    assert [one.text for one in past.logs(refs[1], LogQuery())] == [b"b"]


@pytest.mark.security
@pytest.mark.req("C-history")
def test_forgetting_removes_the_objects_too(setting: ObjectsSetting, tmp_path: Path) -> None:
    store = ObjectStore(setting)
    archive = Archive(str(tmp_path / "h"), objects=store)
    for uid in ("old", "gone"):
        archive.put_job(a_state(uid, uid=uid, phase=Phase.SUCCEEDED, finished=1.0), now=1.0)
        capture = Capture(archive, archive.add_source(a_voice(uid)))
        capture.write(line(1))
        capture.end()
    tiering.move_sealed(archive)
    names = [file for (file,) in archive.read("SELECT file FROM chunks")]
    assert all(store.get(name) for name in names)
    assert ArchiveReader(archive).delete_job(JobRef("team", "gone")) == 1
    retention.apply_retention(archive, retention.RetentionSettings(), 1.0 + 8 * DAY)
    assert [store.get(name) for name in names] == [None, None]
    assert not list((tmp_path / "h").glob("cache/*"))


@pytest.mark.req("C-history")
def test_a_store_that_is_away_loses_nothing(setting: ObjectsSetting, tmp_path: Path) -> None:
    away = ObjectStore(ObjectsSetting("http://127.0.0.1:1", "lines", "", "r", "a", setting.secret_key_file))
    archive = Archive(str(tmp_path / "h"), objects=away)
    archive.put_job(a_state(), now=1.0)
    capture = Capture(archive, archive.add_source(a_voice()))
    capture.write(line(1))
    capture.end()
    with pytest.raises(BackendError, match="no response"):
        tiering.move_sealed(archive)
    assert texts(ArchiveReader(archive)) == ["line 1"]
    archive.objects = ObjectStore(setting)
    assert tiering.move_sealed(archive) == 1


def test_what_is_no_object_store_is_told() -> None:
    with pytest.raises(InvalidJob, match="not a valid object store"):
        ObjectStore(ObjectsSetting("s3.example.com", "lines"))
