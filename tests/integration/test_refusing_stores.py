"""Object stores that refuse, lie or break off: nothing is ever removed here that is not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.history_support import a_state, a_voice, line, texts

from mpijob.backends import s3_volumes
from mpijob.backends.s3_volumes import Bucket, Connection
from mpijob.errors import BackendError
from mpijob.history import retention
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.log_writer import Capture
from mpijob.history.storage import tiering
from mpijob.history.storage.s3 import ObjectStore
from mpijob.model import Phase
from mpijob.settings import ObjectsSetting

from .buckets_support import content, s3_server
from .faulty_s3 import Chosen, Fault, FaultyStore, everything, faulty, is_write

pytestmark = [pytest.mark.engine, pytest.mark.security]

FAULTS = [*Fault]
# the whole store fails, or only what is written to it
SCOPES = {"writes": is_write, "everything": everything}
# an upload whose answer is lost is confirmed by the store itself when it is asked: see the last test
LOST_ANSWER = (Fault.CUT_ANSWER, "writes")
FAILURES = [(fault, scope) for fault in FAULTS for scope in SCOPES if (fault, scope) != LOST_ANSWER]


@pytest.fixture(scope="module")
def server() -> Iterator[Connection]:
    with s3_server(bucket="lines") as server:
        yield server


@pytest.fixture
def proxy(server: Connection) -> Iterator[FaultyStore]:
    with faulty(server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def setting(proxy: FaultyStore, tmp_path: Path) -> ObjectsSetting:
    (tmp_path / "key").write_text("secret\n")
    return ObjectsSetting(
        proxy.endpoint, "lines", tmp_path.name, "eu-central-1", "access", str(tmp_path / "key")
    )


def an_archive(tmp_path: Path, setting: ObjectsSetting, lines: int = 2000, voices: int = 1) -> Archive:
    """Return a record whose lines are sealed and still here."""
    archive = Archive(str(tmp_path / "h"), objects=ObjectStore(setting))
    for number in range(voices):
        uid = f"u{number}"
        archive.put_job(a_state(uid, uid=uid, phase=Phase.SUCCEEDED, finished=1.0), now=1.0)
        capture = Capture(archive, archive.add_source(a_voice(uid)))
        for at in range(lines):
            capture.write(line(at))
        capture.end()
    return archive


def chunks(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tmp_path / "h" / "logs").rglob("*.log")}


def connected(proxy: FaultyStore) -> Connection:
    return Connection(proxy.endpoint, "lines", "access", "s3cr3t-k3y")


@pytest.mark.req("C-history")
@pytest.mark.parametrize(("fault", "scope"), FAILURES, ids=str)
def test_no_lines_leave_the_disk_before_the_store_has_them(
    setting: ObjectsSetting, proxy: FaultyStore, tmp_path: Path, fault: Fault, scope: str
) -> None:
    archive = an_archive(tmp_path, setting)
    before, kept = texts(ArchiveReader(archive)), chunks(tmp_path)
    proxy.fault, proxy.chosen = fault, SCOPES[scope]
    with pytest.raises(BackendError) as refused:
        tiering.move_sealed(archive)
    assert refused.value.code == "NOT_STORED"
    assert chunks(tmp_path) == kept
    assert texts(ArchiveReader(archive)) == before
    proxy.fault = None
    assert tiering.move_sealed(archive) == 1  # the next round
    assert chunks(tmp_path) == {}
    ((file,),) = archive.read("SELECT file FROM chunks")
    assert ObjectStore(setting).get(file) == next(iter(kept.values()))
    assert texts(ArchiveReader(archive)) == before


@pytest.mark.req("C-history")
def test_no_lines_leave_the_disk_for_a_bucket_that_does_not_exist(
    server: Connection, setting: ObjectsSetting, tmp_path: Path
) -> None:
    nowhere = ObjectsSetting(server.endpoint, "no-such-bucket", "", "r", "access", setting.secret_key_file)
    archive = an_archive(tmp_path, nowhere)
    kept = chunks(tmp_path)
    with pytest.raises(BackendError) as refused:
        retention.apply_retention(archive, retention.RetentionSettings(), 2.0)
    assert refused.value.code == "NOT_STORED"
    assert "no-such-bucket" in refused.value.message
    assert chunks(tmp_path) == kept


@pytest.mark.req("C-history")
def test_one_object_that_is_refused_does_not_hold_back_the_others(
    setting: ObjectsSetting, proxy: FaultyStore, tmp_path: Path
) -> None:
    archive = an_archive(tmp_path, setting, lines=10, voices=3)
    rows = archive.read("SELECT file FROM chunks ORDER BY id")
    poisoned = os.path.basename(rows[0][0])
    proxy.fault, proxy.chosen = Fault.FORBIDDEN, lambda method, target: poisoned in target
    with pytest.raises(BackendError) as refused:
        tiering.move_sealed(archive)
    assert refused.value.code == "NOT_STORED"
    assert {*chunks(tmp_path)} == {poisoned}


@pytest.mark.req("D-storage")
@pytest.mark.parametrize(("fault", "scope"), FAILURES, ids=str)
def test_no_file_of_a_volume_counts_as_stored_before_the_store_has_it(
    proxy: FaultyStore, tmp_path: Path, fault: Fault, scope: str
) -> None:
    (tmp_path / "weights").write_bytes(os.urandom(100_000))
    bucket = Bucket(connected(proxy), f"small/{tmp_path.name}")
    proxy.fault, proxy.chosen = fault, SCOPES[scope]
    with pytest.raises(BackendError) as refused:
        s3_volumes.store(bucket, tmp_path, {})
    assert refused.value.code == "NOT_STORED"
    proxy.fault = None
    moved, known = s3_volumes.store(bucket, tmp_path, {})
    assert (moved.files, {*known}) == (1, {"weights"})
    assert bucket.get("weights") == (tmp_path / "weights").read_bytes()


STEPS: dict[str, Chosen] = {
    "start": lambda method, target: method == "POST" and "uploads" in target,
    "part": lambda method, target: method == "PUT" and "partNumber=2" in target,
    "complete": lambda method, target: method == "POST" and "uploadId" in target,
}
LARGE = [(fault, step) for step in STEPS for fault in FAULTS if (fault, step) != (Fault.OTHER_BYTES, "start")]


@pytest.mark.req("D-storage")
@pytest.mark.parametrize(("fault", "step"), LARGE, ids=str)
def test_no_large_file_counts_as_stored_before_the_store_has_it_and_no_parts_stay(
    proxy: FaultyStore, server: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, step: str
) -> None:  # fmt: skip
    monkeypatch.setattr(s3_volumes, "_PART_BYTES", 5 << 20)
    (tmp_path / "large").write_bytes(os.urandom((5 << 20) + 12_345))
    folder = f"large/{tmp_path.name}"
    bucket = Bucket(connected(proxy), folder)
    proxy.fault, proxy.chosen = fault, STEPS[step]
    with pytest.raises(BackendError) as refused:
        s3_volumes.store(bucket, tmp_path, {})
    assert refused.value.code == "NOT_STORED"
    assert unfinished(server, folder) == []
    proxy.fault = None
    assert s3_volumes.store(bucket, tmp_path, {})[0].files == 1
    assert content(server, folder)["large"] == (tmp_path / "large").read_bytes()


def unfinished(server: Connection, folder: str) -> list[str]:
    """Return the uploads below a folder that hold parts and were neither completed nor aborted."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    found = client.list_multipart_uploads(Bucket=server.bucket).get("Uploads", [])
    named = [(one["Key"], one["UploadId"]) for one in found if one["Key"].startswith(folder)]
    return [
        key
        for key, upload in named
        if client.list_parts(Bucket=server.bucket, Key=key, UploadId=upload).get("Parts")
    ]


@pytest.mark.parametrize("fault", [Fault.CUT_ANSWER, Fault.FORBIDDEN, Fault.NO_BUCKET, Fault.ERROR_IN_200])
def test_a_list_that_is_refused_or_breaks_off_is_an_error_and_not_an_empty_folder(
    proxy: FaultyStore, tmp_path: Path, fault: Fault
) -> None:
    bucket = Bucket(connected(proxy), f"list/{tmp_path.name}")
    bucket.put("file", b"x")
    proxy.fault, proxy.chosen = fault, lambda method, target: "list-type" in target
    with pytest.raises(BackendError):
        s3_volumes.fetch(bucket, tmp_path)


@pytest.mark.parametrize("fault", [Fault.CUT_ANSWER, Fault.CUT_REQUEST, Fault.FORBIDDEN, Fault.NO_BUCKET])
def test_an_object_that_is_refused_or_breaks_off_is_an_error_and_never_a_whole_file(
    proxy: FaultyStore, tmp_path: Path, fault: Fault
) -> None:
    bucket = Bucket(connected(proxy), f"cut/{tmp_path.name}")
    bucket.put("file", os.urandom(300_000))
    proxy.fault, proxy.chosen = fault, lambda method, target: target.endswith("/file")
    with pytest.raises(BackendError):
        s3_volumes.fetch(bucket, tmp_path)
    with pytest.raises(BackendError):
        bucket.get("file")


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.NO_BUCKET, Fault.BROKEN])
def test_what_cannot_be_removed_is_told(proxy: FaultyStore, tmp_path: Path, fault: Fault) -> None:
    bucket = Bucket(connected(proxy), f"gone/{tmp_path.name}")
    bucket.put("file", b"x")
    proxy.fault, proxy.chosen = fault, lambda method, target: method == "DELETE"
    with pytest.raises(BackendError):
        bucket.remove("file")
    proxy.fault = None
    assert bucket.get("file") == b"x"
    bucket.remove("file")
    assert bucket.get("file") is None


def test_an_upload_whose_answer_is_lost_counts_when_the_store_confirms_it(
    setting: ObjectsSetting, proxy: FaultyStore, tmp_path: Path
) -> None:
    archive = an_archive(tmp_path, setting)
    (kept,) = chunks(tmp_path).values()
    proxy.fault = Fault.CUT_ANSWER
    assert tiering.move_sealed(archive) == 1
    proxy.fault = None
    ((file,),) = archive.read("SELECT file FROM chunks")
    assert ObjectStore(setting).get(file) == kept
