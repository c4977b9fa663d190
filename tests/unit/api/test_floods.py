"""Connections that are opened and never used, by the thousand: whoever asks properly is still answered."""

from __future__ import annotations

import http.client
import os
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from tests.unit.api.test_api_stream import Server, serving
from tests.visitor import Page, opened

from mpijob.api.auth.client_address import Proxies
from mpijob.api.live import sse
from mpijob.api.server import Options
from mpijob.cluster.webhook import certificates
from mpijob.errors import InvalidJob
from mpijob.serving import connections
from mpijob.settings import Settings

pytestmark = [pytest.mark.security, pytest.mark.hostile]

MANY = 1500
ANSWERS = 100  # that others get meanwhile
SOON = 1.0


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    environ = {**os.environ, "MPIJOB_ENGINE": "memory", "MPIJOB_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with opened(environ, tmp_path) as one:
        one.sign_in()
        yield one


class Flood:
    """Many connections to one server, kept open as long as the server lets them be."""

    def __init__(self, page: Page | Server) -> None:
        host, _, port = page.base.removeprefix("http://").partition(":")
        self._address, self.host = (host, int(port)), f"{host}:{port}"
        self.lines: list[socket.socket] = []

    def open(self, *, text: str, after_an_answer: bool) -> None:
        """Open a connection; have a whole request answered on it first, if that is asked for; then say the text."""
        line = socket.create_connection(self._address, timeout=10)
        self.lines.append(line)
        if after_an_answer:
            line.sendall(f"GET /api/v1/health HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
            status(line)
        line.sendall(text.format(host=self.host).encode())

    def drip(self) -> None:
        """Say one more byte on every connection that is still open."""
        for line in self.lines:
            try:
                line.send(b"x", socket.MSG_DONTWAIT)
            except OSError:
                continue

    def open_ones(self) -> int:
        """Return how many connections the server still has."""
        with selectors.DefaultSelector() as ready:
            for line in self.lines:
                line.setblocking(False)
                ready.register(line, selectors.EVENT_READ)
            ended = [key.fileobj for key, _ in ready.select(0) if _ended(key.fileobj)]
        return len(self.lines) - len(ended)

    def close(self) -> None:
        for line in self.lines:
            line.close()


def status(line: socket.socket) -> int:
    """Return the status of an answer, once all of it was read."""
    answer = http.client.HTTPResponse(line)
    answer.begin()
    answer.read()
    return answer.status


def _ended(line: object) -> bool:
    assert isinstance(line, socket.socket)
    try:
        while data := line.recv(4096):
            assert data
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


HALF = "GET /api/v1/trainjobs HTTP/1.1\r\nHost: {host}\r\nX-Slow: "
UNREAD_BODY = "POST /api/v1/health HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\n"
FLOODS: dict[str, tuple[str, bool]] = {
    "second request half sent": (HALF, True),
    "first request half sent": (HALF, False),
    "silent": ("", False),
    "silent after an answer": ("", True),
    "a body that nobody reads": (UNREAD_BODY, True),
}


def slowest(ask: Callable[[], object]) -> float:
    """Return how long the slowest of many answers took."""
    worst = 0.0
    for _ in range(ANSWERS):
        begun = time.monotonic()
        ask()
        worst = max(worst, time.monotonic() - begun)
    return worst


@pytest.mark.alone
@pytest.mark.thorough
@pytest.mark.parametrize("kind", FLOODS)
def test_half_requests_by_the_thousand_keep_nobody_else_waiting(page: Page, kind: str) -> None:
    text, after_an_answer = FLOODS[kind]
    flood = Flood(page)
    with ExitStack() as ends:
        ends.callback(flood.close)
        for _ in range(MANY):
            flood.open(text=text, after_an_answer=after_an_answer)

        def ask() -> None:
            assert page.json("GET", "/trainjobs")["items"] == []

        assert slowest(ask) < SOON
        flood.drip()
        assert slowest(ask) < SOON
        assert flood.open_ones() <= connections.MAX_IDLE_CONNECTIONS


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on which a request must come soon."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with serving() as server:
        yield server


def ended_after(line: socket.socket, seconds: float, said: bytes = b"x") -> float:
    """Say one byte after the other and return how long it took until the server hung up."""
    begun = time.monotonic()
    line.settimeout(0.05)
    while time.monotonic() - begun < seconds:
        try:
            line.sendall(said)
            if not line.recv(4096):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - begun


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [one for one in FLOODS if FLOODS[one][0]])
def test_whoever_says_a_byte_now_and_then_has_no_more_time(hasty: Server, kind: str) -> None:
    text, after_an_answer = FLOODS[kind]
    flood = Flood(hasty)
    flood.open(text=text, after_an_answer=after_an_answer)
    assert ended_after(flood.lines[0], 10) < 5
    flood.close()


@pytest.mark.thorough
def test_a_connection_is_used_for_many_requests_for_longer_than_one_may_take(hasty: Server) -> None:
    flood = Flood(hasty)
    flood.open(text="", after_an_answer=True)
    line, begun, answers = flood.lines[0], time.monotonic(), 0
    while time.monotonic() - begun < 1.5:  # three times as long as a request may take
        line.sendall(f"GET /api/v1/health HTTP/1.1\r\nHost: {flood.host}\r\n\r\n".encode())
        assert status(line) == 200
        answers += 1
    assert answers > 3
    flood.close()


@pytest.mark.thorough
def test_a_websocket_is_open_for_longer_than_a_request_may_take(
    hasty: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.2)
    flood, word = Flood(hasty), hasty.headers["x-mpijob-csrf"]
    upgrade = (
        f"GET /api/v1/stream?csrf={word} HTTP/1.1\r\nHost: {{host}}\r\nOrigin: http://{{host}}\r\n"
        f"Cookie: {hasty.headers['cookie']}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    flood.open(text=upgrade, after_an_answer=False)
    line, begun, beats = flood.lines[0], time.monotonic(), 0
    while time.monotonic() - begun < 1.5:
        beats += line.recv(65536).count(b'"beat"')
    assert beats > 3
    flood.close()


# -- how many connections one address may have ------------------------------------------------------
@contextmanager
def listening(most: int, counted: Callable[[str], bool]) -> Iterator[connections.Listener]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        bound.setblocking(False)
        with connections.Listener(bound.detach(), most, counted) as listener:
            yield listener


def connect(listener: connections.Listener, times: int) -> list[socket.socket]:
    return [socket.create_connection(listener.getsockname(), timeout=10) for _ in range(times)]


def accepted(listener: connections.Listener) -> list[socket.socket]:
    found: list[socket.socket] = []
    with suppress(BlockingIOError):
        while True:
            found.append(listener.accept()[0])
    return found


def test_one_address_has_only_so_many_connections_and_each_that_ends_makes_room() -> None:
    with listening(3, lambda peer: True) as listener:
        ours = connect(listener, 5)
        theirs = accepted(listener)
        assert len(theirs) == 3
        assert [line.recv(1) for line in ours[3:]] == [b"", b""]
        theirs[0].close()
        theirs[0].close()
        ours += connect(listener, 2)
        theirs += accepted(listener)
        assert len(theirs) == 4
        for line in (*ours, *theirs):
            line.close()
        assert listener._open == {}


@pytest.mark.parametrize(("most", "counts"), [(3, False), (0, True)])
def test_a_proxy_has_as_many_connections_as_it_wants_and_so_has_everybody_without_a_limit(
    most: int, counts: bool
) -> None:
    with listening(most, lambda peer: counts) as listener:
        ours = connect(listener, 8)
        theirs = accepted(listener)
        assert len(theirs) == 8
        for line in (*ours, *theirs):
            line.close()


@pytest.mark.parametrize(
    ("peer", "speaks_for_many"),
    [
        ("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("", True),
        ("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("fd00::7", True),
        ("10.2.0.1", False), ("203.0.113.9", False), ("fe80::1%eth0", False),
    ],
)  # fmt: skip
def test_what_comes_from_this_machine_or_from_a_known_proxy_may_be_many_peoples(
    peer: str, speaks_for_many: bool
) -> None:
    assert Proxies(("10.1.0.0/16", "fd00::7")).speaks_for_many(peer) is speaks_for_many


def test_a_proxy_that_is_no_address_is_refused() -> None:
    with pytest.raises(InvalidJob):
        Proxies(("ingress",))


# -- TLS of our own ---------------------------------------------------------------------------------
SERVER = (
    "from mpijob.serving import connections; connections.HEAD_SECONDS = 0.5\n"
    "from mpijob.api.__main__ import main; main()"
)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """The port of a server with TLS on which whoever is silent is hung up on soon, and how to trust it."""
    keys = certificates.renew(["127.0.0.1"])
    files = {"crt": keys.certificate, "key": keys.key, "ca": keys.bundle}
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    environ = {**os.environ, "MPIJOB_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as bound, tempfile.TemporaryFile() as handed:
        port = bound.getsockname()[1]
        options = Options(
            socket=bound.fileno(),
            hosts=(f"127.0.0.1:{port}",),
            settings=Settings(home=str(tmp_path), engine="memory"),
            tls=(str(tmp_path / "crt"), str(tmp_path / "key")),
        )
        handed.write(msgspec.json.encode(options))
        handed.seek(0)
        fds = (bound.fileno(), handed.fileno())
        argv = [sys.executable, "-c", SERVER, str(handed.fileno())]
        process = subprocess.Popen(argv, pass_fds=fds, env=environ)
    try:
        yield port, ssl.create_default_context(cafile=str(tmp_path / "ca"))
    finally:
        process.kill()
        process.wait(20)


@pytest.mark.thorough
def test_who_never_begins_with_tls_is_hung_up_on_and_others_are_answered(
    secured: tuple[int, ssl.SSLContext],
) -> None:
    port, trust = secured
    silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(200)]
    asked = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=20)
    asked.request("GET", "/api/v1/health")
    assert asked.getresponse().status == 200
    assert {line.recv(1) for line in silent} == {b""}, "asyncio's own limit is a minute"
    for line in silent:
        line.close()
    asked.close()
