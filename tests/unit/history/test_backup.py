"""A record in one file: whole while it is written, refused when it is none, and one person's part of it erased."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path

import pytest
from tests.unit.history_support import a_key, a_state, a_voice, line, recorded, shared_archive, texts

from mpijob.backends.local import LocalBackend
from mpijob.client.history import maintenance
from mpijob.errors import BackendError, Conflict, InvalidJob
from mpijob.history import backup
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.log_writer import Capture
from mpijob.model import JobRef, Phase, Sample
from mpijob.model.status.accounts import AccountQuery
from mpijob.settings import Settings

archive = pytest.fixture(shared_archive)


@pytest.mark.req("C-history")
def test_a_backup_put_back_elsewhere_answers_the_same(archive: Archive, tmp_path: Path) -> None:
    archive.put_job(a_state(phase=Phase.SUCCEEDED, finished=2.0, owner="jane"), now=3.0)
    archive.add_samples(a_key(), [Sample(1.0, 0, 1.0, 1024)])
    capture = Capture(archive, archive.add_source(a_voice()))
    for number in range(1000):
        capture.write(line(number))
    capture.end()
    assert backup.backup(archive, str(tmp_path / "all.tar")) == 1
    assert (tmp_path / "all.tar").stat().st_mode & 0o777 == 0o600
    assert not list((tmp_path / "history").glob("backup-*"))
    assert backup.restore(str(tmp_path / "all.tar"), str(tmp_path / "new")) == 1
    before, after = ArchiveReader(archive), ArchiveReader(Archive(str(tmp_path / "new")))
    ref = JobRef("team", "bert")
    assert after.record(ref) == before.record(ref)
    assert after.samples(ref) == before.samples(ref)
    assert [*after.accounts(AccountQuery())] == [*before.accounts(AccountQuery())]
    assert texts(after) == texts(before)
    assert len(texts(after)) == 1000


@pytest.mark.thorough
@pytest.mark.req("C-history")
def test_a_backup_taken_while_lines_come_holds_a_beginning_of_them(archive: Archive, tmp_path: Path) -> None:
    archive.put_job(a_state(), now=1.0)
    capture = Capture(archive, archive.add_source(a_voice()))
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            capture.write(line(number))
            number += 1
            if number % 200 == 0:
                capture.flush()
        capture.end()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            backup.backup(archive, str(tmp_path / f"{number}.tar"))
    finally:
        stop.set()
        writer.join()
    everything = recorded(archive, "u1")
    for number in range(5):
        backup.restore(str(tmp_path / f"{number}.tar"), str(tmp_path / f"r{number}"))
        kept = recorded(Archive(str(tmp_path / f"r{number}")), "u1")
        assert everything.startswith(kept)


@pytest.mark.security
def test_what_is_no_backup_is_refused_and_leaves_nothing(archive: Archive, tmp_path: Path) -> None:
    for name, content in (
        ("../evil", b"x"),
        ("logs/a/../../evil", b"x"),
        ("history.db", b"no database" * 100),
    ):
        with tarfile.open(tmp_path / "bad.tar", "w") as packed:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
        with pytest.raises((InvalidJob, BackendError)):
            backup.restore(str(tmp_path / "bad.tar"), str(tmp_path / "new"))
    (tmp_path / "text.tar").write_text("this is no archive")
    with pytest.raises(InvalidJob, match="not a backup"):
        backup.restore(str(tmp_path / "text.tar"), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "evil").exists()
    backup.backup(archive, str(tmp_path / "good.tar"))
    with pytest.raises(Conflict, match="exists already"):
        backup.backup(archive, str(tmp_path / "good.tar"))
    with pytest.raises(Conflict, match="already contains a job history"):
        backup.restore(str(tmp_path / "good.tar"), archive.directory)


def test_only_records_of_jobs_that_are_gone_are_erased_of_a_person(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, deleted in (("gone", 20.0), ("there", None)):
        archive.put_job(
            a_state(name, name, Phase.SUCCEEDED, owner="bob", finished=10.0, deleted=deleted), now=30.0
        )
    monkeypatch.setattr(maintenance, "directory", lambda backend, settings: archive.directory)
    found = maintenance.erase_user(LocalBackend(Settings(home=str(tmp_path))), Settings(), "bob")
    assert [ref.name for ref in found] == ["gone"]
    assert (archive.state(a_key("gone")), archive.state(a_key("there")) is None) == (None, False)
