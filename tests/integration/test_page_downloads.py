"""Files of a job handed over by the page's server to a visitor: streamed, bounded, never half of one as a whole."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import socket
import stat
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.unit.preflight_support import SERVED
from tests.unit.visitor_support import KEYS, VISITOR, cluster, listening

from mpijob.api.app import application
from mpijob.api.auth.cluster_token import FORWARDED, TokenAuth
from mpijob.api.openapi import PREFIX
from mpijob.api.request_context import AppState
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.memory import MemoryBackend
from mpijob.backends.s3_volumes import Bucket, Connection
from mpijob.client import AsyncClient
from mpijob.client.multiuser.sessions import SessionStore
from mpijob.model import Identity
from mpijob.model.platform.form_options import Option
from mpijob.model.platform.permission import Question
from mpijob.outbound.policy import Policy, server_policy
from mpijob.settings import OutboundSetting, Settings

from .buckets_support import s3_server
from .faulty_s3 import Fault, FaultyStore, faulty
from .support import eventually

pytestmark = [pytest.mark.engine, pytest.mark.security]
LARGE = 48 << 20
ONE = f"{PREFIX}/trainjobs/team-cv/bert"


class Visitors(KubernetesBackend):
    """The cluster for a visitor who may everything, without a cluster."""

    def whoami(self) -> Identity:
        return Identity("alice")

    def check_access(self, questions: Sequence[Question]) -> tuple[bool, ...]:
        return (True,) * len(questions)


@pytest.fixture(scope="module")
def server() -> Iterator[Connection]:
    with s3_server() as server:
        yield server


@pytest.fixture
def proxy(server: Connection) -> Iterator[FaultyStore]:
    with faulty(server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the page's server keeps what is temporary."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def allowing(**more: Any) -> Policy:
    return server_policy(OutboundSetting(allow=("127.0.0.1",), **more), [])


@contextmanager
def page(endpoint: str, policy: Policy | None) -> Iterator[int]:
    """Run the page's server on a port of this machine, for people of a cluster."""
    settings = Settings(home="/nowhere", audit="off", kubeconfig="/nowhere")

    def opened(token: str) -> Any:
        backend = Visitors(settings, VISITOR, policy)
        backend._api = cluster(endpoint, keys=KEYS)
        backend._reader.__dict__["served"] = SERVED
        return backend

    listening = socket.create_server(("127.0.0.1", 0))
    port = int(listening.getsockname()[1])
    client = AsyncClient(MemoryBackend(), settings=settings)
    room = AppState(client, TokenAuth([f"127.0.0.1:{port}"], SessionStore(settings, opened)))
    room.projects._known = (float("inf"), (Option("team-cv"),))
    running = uvicorn.Server(uvicorn.Config(application(room), log_level="error", lifespan="off"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        eventually(lambda: running.started, "the page's server runs", 30)
        yield port
    finally:
        running.should_exit = True
        thread.join(30)
        listening.close()


def asked(port: int, path: str) -> http.client.HTTPResponse:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("GET", path, headers={FORWARDED: "alice-token"})
    return line.getresponse()


def refusal(port: int, path: str) -> tuple[int, dict[str, Any]]:
    answer = asked(port, path)
    return answer.status, json.loads(answer.read())


def pipes(folder: Path) -> list[os.stat_result]:
    found = []
    for one in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a pipe goes when it has been read to its end
            found.append(one.stat())
    return [one for one in found if not stat.S_ISDIR(one.st_mode)]


def test_a_large_file_passes_through_and_is_never_whole_on_the_disk_or_in_memory(
    server: Connection, folder: Path
) -> None:
    content = os.urandom(1 << 20) * (LARGE >> 20)
    (folder.parent / "model").write_bytes(content)
    with (folder.parent / "model").open("rb") as source:
        Bucket(server, "results").upload("model", source.fileno(), LARGE)
    wanted = hashlib.sha256(content).hexdigest()
    del content
    with page(server.endpoint, allowing()) as port:
        assert [(one["path"], one["size"]) for one in json.loads(asked(port, f"{ONE}/artifacts").read())["items"]] == [
            ("out/model", LARGE)
        ]  # fmt: skip
        tracemalloc.start()
        try:
            answer = asked(port, f"{ONE}/artifact?path=out/model")
            found, size = hashlib.sha256(), 0
            while piece := answer.read(1 << 20):
                found.update(piece)
                size += len(piece)
                assert all(stat.S_ISFIFO(one.st_mode) for one in pipes(folder))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (answer.status, size, found.hexdigest()) == (200, LARGE, wanted)
    assert peak < 16 << 20
    assert answer.getheader("content-disposition") == "attachment; filename*=UTF-8''model"
    eventually(lambda: not list(folder.iterdir()), "nothing stays", 10)


def test_small_and_empty_files_and_odd_names(server: Connection, folder: Path) -> None:
    for name, content in (("empty", b""), ('a b;"ü', b"text")):
        Bucket(server, "results").put(name, content)
    with page(server.endpoint, allowing()) as port:
        assert asked(port, f"{ONE}/artifact?path=out/empty").read() == b""
        answer = asked(port, f"{ONE}/artifact?path=out/a%20b;%22%C3%BC")
        assert answer.read() == b"text"
        assert answer.getheader("content-disposition") == "attachment; filename*=UTF-8''a%20b%3B%22%C3%BC"


def test_what_is_not_there_not_allowed_or_too_large_is_refused_with_a_status(
    server: Connection, folder: Path
) -> None:
    Bucket(server, "results").put("big", b"x" * 2000)
    Bucket(server, "").put("private", b"x")
    with page(server.endpoint, allowing(download_bytes="1000")) as port:
        for path in (
            "out/nothing",
            "out/",
            "out",
            "",
            "elsewhere/x",
            "out/../private",
            "../out/big",
            "/out/big",
        ):
            assert refusal(port, f"{ONE}/artifact?path={path}")[0] in (400, 404), path
        status, told = refusal(port, f"{ONE}/artifact?path=out/big")
        assert (status, told["code"]) == (413, "USAGE")
    with listening() as service, page(service.url, allowing_nothing()) as port:
        for path in ("artifacts", "artifact?path=out/big"):
            status, told = refusal(port, f"{ONE}/{path}")
            assert (status, told["code"]) == (403, "NOT_ALLOWED")
            assert "TOP-SECRET" not in str(told)
        assert service.connections == 0
    eventually(lambda: not list(folder.iterdir()), "nothing stays", 10)


def allowing_nothing() -> Policy:
    return server_policy(OutboundSetting(), [])


def test_a_file_that_breaks_off_is_not_taken_for_a_whole_one(
    server: Connection, proxy: FaultyStore, folder: Path
) -> None:
    Bucket(server, "results").put("cut", os.urandom(1 << 20))
    proxy.fault, proxy.chosen = Fault.CUT_ANSWER, lambda method, target: target.endswith("/cut")
    with page(proxy.endpoint, allowing()) as port:
        answer = asked(port, f"{ONE}/artifact?path=out/cut")
        assert answer.status == 200
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
    eventually(lambda: not list(folder.iterdir()), "nothing stays", 10)


def test_a_visitor_who_leaves_ends_the_download(server: Connection, folder: Path) -> None:
    with (folder.parent / "left").open("wb") as file:
        file.truncate(LARGE)
    with (folder.parent / "left").open("rb") as source:
        Bucket(server, "results").upload("left", source.fileno(), LARGE)
    with page(server.endpoint, allowing()) as port:
        line = socket.create_connection(("127.0.0.1", port))
        target = (
            f"GET {ONE}/artifact?path=out/left HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{FORWARDED}: a\r\n\r\n"
        )
        line.sendall(target.encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 200")
        assert len(pipes(folder)) == 1
        line.close()
        eventually(lambda: not list(folder.iterdir()), "the fetch has ended", 30)


def test_a_store_that_never_answers_ends_in_time_and_delays_nobody_else(folder: Path) -> None:
    def silent(server: Any, line: socket.socket) -> None:
        server.head(line)
        line.recv(1)  # until it is hung up

    with listening(silent) as service, page(service.url, allowing(seconds=1.0)) as port:
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(refusal(port, f"{ONE}/artifacts")[0]))
            for _ in range(12)
        ]
        for one in threads:
            one.start()
        begun = time.monotonic()
        assert asked(port, f"{PREFIX}/session").status == 200
        assert time.monotonic() - begun < 5
        for one in threads:
            one.join(60)
    assert answers == [503] * 12
