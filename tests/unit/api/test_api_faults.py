"""Visitors who are slow, half gone or out of time, and servers that are killed: nobody else notices."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.api.test_api_stream import Server, event, serving
from tests.visitor import Page

from mpijob.api.auth import rate_limit
from mpijob.api.live import sse
from mpijob.api.live.job_index import JobIndex
from mpijob.serving import connections

pytestmark = pytest.mark.security


def eventually(look: Callable[[], Any], seconds: float = 10.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def line_to(server: Server, text: str) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    line.sendall(text.encode())
    return line


@pytest.mark.thorough
def test_who_does_not_finish_a_request_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with serving() as server:
        silent, slow = line_to(server, ""), line_to(server, "GET /api/v1/health HTTP/1.1\r\nHost: a")
        assert (silent.recv(100), slow.recv(100)) == (b"", b"")
        assert server.open("/health").status == 200


@pytest.mark.thorough
def test_who_does_not_finish_a_body_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "BODY_SECONDS", 0.3)
    with serving() as server:
        headers = "".join(f"{name}: {value}\r\n" for name, value in server.headers.items())
        about = f"Host: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\nContent-Length: 50\r\n"
        line = line_to(server, f'POST /api/v1/drafts HTTP/1.1\r\n{about}{headers}\r\n{{"yaml":')
        assert line.recv(100).startswith(b"HTTP/1.1 408 ")


@pytest.mark.thorough
def test_who_takes_nothing_from_a_stream_is_let_go_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limit, "SEND_SECONDS", 0.5)
    monkeypatch.setattr(sse, "_COALESCE_SECONDS", 0.01)
    with serving() as server:
        server.create("seed")
        headers = "".join(f"{name}: {value}\r\n" for name, value in server.headers.items())
        half_open = line_to(
            server, f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{headers}\r\n"
        )
        eventually(lambda: server.room.limits._streams.get("maria"))
        deadline, number = time.monotonic() + 20, 0
        while server.room.limits._streams.get("maria"):
            assert time.monotonic() < deadline
            number += 1
            touch(server.room.job_index, number)
            assert server.open("/health").status == 200
        half_open.close()


def touch(board: JobIndex, number: int) -> None:
    """Let many rows change at once, from another thread than the server's: only the numbers matter here."""
    (row, *_) = board.rows
    fresh = [
        msgspec.structs.replace(row, uid=f"u{at}", name=f"n{at}", why=f"{number} " * 200) for at in range(500)
    ]
    board._put(*fresh)


@pytest.mark.thorough
def test_a_session_that_ended_ends_its_stream_with_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.1)
    now = [time.time()]
    with serving(lambda: now[0]) as server:
        stream = server.open("/stream")
        assert event(stream)[0] == "beat"
        now[0] += 13 * 3600.0
        name, told = event(stream)
        while name == "beat":
            name, told = event(stream)
        assert name == "bye"
        assert "mpijob ui" in told["trouble"]["hint"]
        assert stream.read() == b""


@pytest.mark.thorough
@pytest.mark.req("D-api")
def test_a_server_that_was_killed_is_taken_up_again_where_it_was(tmp_path: Path) -> None:
    environ = {**os.environ, "MPIJOB_ENGINE": "memory", "MPIJOB_HOME": str(tmp_path), "HOME": str(tmp_path)}

    def start(port: str) -> Page:
        argv = [sys.executable, "-m", "mpijob", "ui", "--port", port, "--no-browser"]
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
        )
        return Page(process)

    first = start("0")
    try:
        first.sign_in()
        stream = first.ask("GET", "/stream")
        _, told = event(stream)
    finally:
        first.process.kill()
        first.process.wait(20)
    stream.close()
    second = start(first.base.rpartition(":")[2])
    try:
        with pytest.raises(OSError, match="401"):  # the session died with its server
            second.ask("GET", "/session")
        second.sign_in()
        second.headers["last-event-id"] = told["rev"]
        assert event(second.ask("GET", "/stream"))[0] == "reset"
        assert json.load(second.ask("GET", "/trainjobs"))["items"] == []
    finally:
        second.process.kill()
        second.process.wait(20)
