"""S3 volumes on this machine: a real server that speaks S3, real jobs; nothing leads out of a directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mpijob import Client, Phase
from mpijob.backends import s3_volumes
from mpijob.backends.local import LocalBackend
from mpijob.backends.s3_volumes import Bucket, Connection
from mpijob.errors import BackendError, InvalidJob
from mpijob.model import Retry, Volume, VolumeKind
from mpijob.settings import ObjectsSetting, Settings

from .buckets_support import content, s3_server, variables
from .support import PATIENCE, a_job, ended, eventually, succeeded

pytestmark = pytest.mark.engine

_OUTLIVES = """
import socket, sys, time
while not socket.socket().connect_ex(("127.0.0.1", int(sys.argv[1]))):
    time.sleep(0.1)
open("/out/result", "w").write("kept\\n")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Connection]:
    with s3_server() as connection:
        yield connection


@pytest.fixture
def connected(server: Connection, settings: Settings, tmp_path: Path) -> Iterator[Client]:
    """Return a client whose settings know the bucket as `lake`."""
    (tmp_path / "key").write_text("s3cr3t-k3y\n")
    lake = ObjectsSetting(
        server.endpoint, server.bucket, access_key="access", secret_key_file=str(tmp_path / "key")
    )
    knowing = msgspec.structs.replace(settings, connections={"lake": lake})
    with Client(LocalBackend(knowing), settings=knowing) as client:
        yield client
        for state in [*client.jobs(all_namespaces=True)]:
            client.delete(state.ref, grace_period=0)


def s3(source: str, mount: str, *, read_only: bool = False) -> Volume:
    return Volume(mount=mount, kind=VolumeKind.S3, source=source, read_only=read_only)


@pytest.mark.req("SC-015", "AC7", "D-storage", "Q14")
def test_a_job_reads_its_input_from_a_bucket_and_its_output_is_stored(
    connected: Client, server: Connection
) -> None:
    Bucket(server, "in").put("deep/er/numbers.txt", b"1 2 3")
    script = 'test "$MPIJOB_RANK" = 1 || { mkdir -p /out/a; tr 123 456 </in/deep/er/numbers.txt >/out/a/b; }'
    volumes = (s3("lake/in", "/in", read_only=True), s3("lake/out", "/out"))
    job = succeeded(connected, a_job("copy", script, volumes=volumes))
    assert content(server, "out") == {"a/b": b"4 5 6"}
    assert content(server, "in") == {"deep/er/numbers.txt": b"1 2 3"}
    told = [event.message for event in job.events() if event.reason.startswith("Data")]
    assert told == [
        "/in: 1 file, 5 B fetched from lake/in",
        "/out: 0 files, 0 B fetched from lake/out",
        "/out: 1 file, 5 B stored in lake/out",
    ]


@pytest.mark.req("SC-015", "Q8")
def test_the_next_attempt_begins_with_the_checkpoint_of_the_last_one(
    connected: Client, server: Connection
) -> None:
    script = 'test "$MPIJOB_RANK" = 0 || exit 0; test -f /ckpt/epoch && exit 0; echo 45 >/ckpt/epoch; exit 7'
    job = a_job(
        "resuming", script, volumes=(s3("lake/ckpt", "/ckpt"),), retry=Retry(limit=1, backoff_seconds=0.1)
    )
    state = ended(connected, job)
    assert (state.phase, state.attempt) == (Phase.SUCCEEDED, 2)
    assert content(server, "ckpt") == {"epoch": b"45\n"}


@pytest.mark.req("UC3-AF3", "D-storage")
def test_a_store_that_is_gone_at_the_end_leaves_the_job_succeeded_and_is_asked_again(
    connected: Client, server: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as lost:
        for name, value in variables(lost).items():
            monkeypatch.setenv(name, value)
        command = ("python", "-c", _OUTLIVES, lost.endpoint.rpartition(":")[2])
        job = a_job("unlucky", command=command, volumes=(s3("env/out", "/out"),), workers=1)
        handle = connected.submit(job)
        handle.wait(PATIENCE, {Phase.RUNNING})
    state = handle.wait(PATIENCE)
    assert state.phase is Phase.SUCCEEDED
    assert state.findings[0].code == "DATA_NOT_STORED"
    assert "could not be stored in env/out" in state.message
    for name, value in variables(server).items():
        monkeypatch.setenv(name, value)
    assert connected.store("unlucky") == ("/out: 1 file, 5 B stored in env/out",)
    assert content(server, "out")["result"] == b"kept\n"


def test_a_connection_that_nobody_knows_is_refused_before_anything_is_created(connected: Client) -> None:
    with pytest.raises(InvalidJob, match="there is no data connection 'sea' on this machine \\(lake\\)"):
        connected.submit(a_job("nowhere", volumes=(s3("sea/in", "/in"),)))
    assert connected.list().total == 0


def test_a_bucket_that_is_not_there_fails_the_job_before_its_program_starts(
    connected: Client, server: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables(server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_S3_BUCKET", "missing")
    state = ended(connected, a_job("early", "echo started", volumes=(s3("env/in", "/in"),)))
    assert (state.phase, state.reason) == (Phase.FAILED, "DataNotFetched")
    assert "no bucket 'missing'" in state.message
    assert [*connected.logs("early", ranks=(0, 1))] == []


@pytest.mark.security
def test_the_key_of_a_connection_is_in_no_plan_log_or_variable_and_goes_with_the_job(
    connected: Client, settings: Settings
) -> None:
    job = succeeded(connected, a_job("quiet", "env; cat /proc/1/environ", volumes=(s3("lake/in", "/in"),)))
    said = b"\n".join(line.text for line in job.logs())
    assert b"s3cr3t" not in said
    assert "s3cr3t" not in job.export()
    eventually(lambda: not _files_with(settings, b"s3cr3t-k3y"), "the key went with the job", PATIENCE)


def _files_with(settings: Settings, text: bytes) -> list[Path]:
    """Return the files of all jobs in which a text stands; one that goes while we look is none."""
    found = []
    for path in Path(settings.home, "jobs").rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found += [path] * (path.is_file() and text in path.read_bytes())
    return found


@pytest.mark.security
@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/passwd", "..", "a/.."])
def test_no_object_leads_out_of_the_directory_it_is_fetched_into(
    server: Connection, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "target"
    target.mkdir()

    class Listing(Bucket):
        def names(self) -> Iterator[tuple[str, int]]:
            yield name, 1

    with pytest.raises(BackendError, match="would be written outside"):
        s3_volumes.fetch(Listing(server, "hostile"), target)
    assert list(target.iterdir()) == []


@pytest.mark.security
def test_no_link_is_followed_when_files_are_fetched_or_stored(server: Connection, tmp_path: Path) -> None:
    secret, target = tmp_path / "secret", tmp_path / "target"
    secret.mkdir()
    target.mkdir()
    (secret / "key").write_text("private")
    (target / "link").symlink_to(secret)
    (target / "file").symlink_to(secret / "key")
    bucket = Bucket(server, "links")
    assert s3_volumes.store(bucket, target, {})[0].files == 0
    bucket.put("link/key", b"changed")
    with pytest.raises(BackendError, match="cannot be written below"):
        s3_volumes.fetch(bucket, target)
    assert (secret / "key").read_text() == "private"


def test_a_large_file_goes_over_in_parts_and_many_names_in_pages(
    server: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_volumes, "_PART_BYTES", 5 << 20)
    (tmp_path / "large").write_bytes(os.urandom(11 << 20))
    (tmp_path / "odd näme +&=").write_text("x")
    bucket = Bucket(server, "large")
    moved, known = s3_volumes.store(bucket, tmp_path, {})
    assert str(moved) == "2 files, 11 MiB"
    back = tmp_path.parent / f"{tmp_path.name}-back"
    back.mkdir()
    s3_volumes.fetch(bucket, back)
    assert (back / "large").read_bytes() == (tmp_path / "large").read_bytes()
    assert (back / "odd näme +&=").read_text() == "x"
    assert s3_volumes.store(bucket, tmp_path, known)[0].files == 0
    pages: list[dict[str, Any]] = []
    events = bucket._api().meta.events
    events.register("provide-client-params.s3.ListObjectsV2", lambda params, **_: params | {"MaxKeys": 10})
    events.register("after-call.s3.ListObjectsV2", lambda parsed, **_: pages.append(parsed))
    for number in range(25):
        bucket.put(f"many/{number}", b"")
    assert sum(1 for _ in bucket.names()) == 27
    assert [page["KeyCount"] for page in pages] == [10, 10, 7]
