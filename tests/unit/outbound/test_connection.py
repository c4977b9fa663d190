"""HTTP over a real pair of sockets: what is sent, what is kept, and responses that are none or have no end."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.visitor_support import Listener, listening, tell

from mpijob.errors import NotAllowed
from mpijob.outbound import http as outbound_http
from mpijob.outbound.connection import (
    BodyTooLong,
    Connection,
    InvalidRequest,
    ProtocolError,
    has_data,
    proxy_for,
)
from mpijob.outbound.policy import PUBLIC

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MOST = 1 << 20


class Ends(NamedTuple):
    connection: Connection
    far: socket.socket

    def heard(self) -> bytes:
        self.far.setblocking(False)
        try:
            return self.far.recv(9999)
        except BlockingIOError:
            return b""

    def answered(self, *answers: bytes, last: bool = True) -> bytes:
        """Ask, let the server answer so, and return the body."""
        for answer in answers:
            with contextlib.suppress(OSError):  # whoever refuses a response closes the connection
                self.far.sendall(answer)
        if last:
            self.far.shutdown(socket.SHUT_WR)
        self.connection.send_request("GET", "/", [])
        return self.connection.read_response().read_all(MOST)


@contextlib.contextmanager
def pair() -> Iterator[Ends]:
    near, far = socket.socketpair()
    connection = Connection("http://h:1", timeout=10, dial=lambda *_: near)
    near.settimeout(10)
    connection.sock = near
    try:
        yield Ends(connection, far)
    finally:
        connection.close()
        near.close()
        far.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    with pair() as made:
        yield made


def test_a_request_has_its_headers_and_its_body(ends: Ends) -> None:
    headers = [("Impersonate-Group", "a"), ("Impersonate-Group", "ü")]
    ends.connection.send_request("POST", "/api?a=b", headers, b"hi")
    assert ends.heard() == (
        b"POST /api?a=b HTTP/1.1\r\nAccept-Encoding: identity\r\nHost: h:1\r\n"
        b"Impersonate-Group: a\r\nImpersonate-Group: \xc3\xbc\r\n"
        b"Content-Length: 2\r\n\r\nhi"
    )


@pytest.mark.security
@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\n b", "a\nb", "a\rb", "a\0b", "a\x7fb"])
def test_a_header_cannot_smuggle_another_one_in(ends: Ends, value: str) -> None:
    with pytest.raises(InvalidRequest):
        ends.connection.send_request("GET", "/", [("Authorization", value)])
    assert ends.heard() == b""


@pytest.mark.security
@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: 1", "/ä", "/a\tb", "/\x7f"])
def test_an_address_cannot_end_its_line(ends: Ends, target: str) -> None:
    with pytest.raises(InvalidRequest):
        ends.connection.send_request("GET", target, [])
    assert ends.heard() == b""


@pytest.mark.security
def test_a_method_cannot_be_a_request_of_its_own(ends: Ends) -> None:
    with pytest.raises(InvalidRequest):
        ends.connection.send_request("GET /x HTTP/1.1\r\nX:", "/", [])
    assert ends.heard() == b""


def test_a_request_that_the_server_cuts_short_is_answered_all_the_same(ends: Ends) -> None:
    ends.far.sendall(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    ends.far.close()
    ends.connection.send_request("POST", "/", [], b"x" * (1 << 22))
    assert ends.connection.read_response().status == 413


def test_a_request_that_is_cut_and_not_answered_is_told_as_cut(ends: Ends) -> None:
    def ask() -> None:
        ends.connection.send_request("POST", "/", [], b"x" * (1 << 22))
        ends.connection.read_response()

    ends.far.close()
    with pytest.raises(ConnectionError):
        ask()


def test_answers_follow_one_another_over_one_connection(ends: Ends) -> None:
    chunks = b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    answers = (WHOLE, b"HTTP/1.1 100 Continue\r\n\r\n" + chunks, WHOLE)
    assert [ends.answered(answer, last=False) for answer in answers] == [b"ok", b"abc", b"ok"]
    assert ends.connection.sock is not None


@pytest.mark.security
@pytest.mark.parametrize("size", [2, 8192 - 60, 65536 - 41, 65536, 200_000])
def test_an_answer_that_nobody_asked_for_is_given_to_nobody(ends: Ends, size: int) -> None:
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    first = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, b"x" * size)
    sending = threading.Thread(target=ends.far.sendall, args=(first + evil,), daemon=True)
    sending.start()
    assert len(ends.answered(last=False)) == size
    sending.join(10)
    if not has_data(ends.connection.sock):  # else it is not used again
        assert ends.answered(WHOLE, last=False) == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: Close, X-Trace\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
def test_a_connection_that_ends_with_its_answer_is_not_kept(ends: Ends, answer: bytes) -> None:
    assert ends.answered(answer) == b"ok"
    assert ends.connection.sock is None


@pytest.mark.parametrize("more", [b"", b"Content-Length: 7\r\n", b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_none(ends: Ends, status: int, more: bytes) -> None:
    assert ends.answered(b"HTTP/1.1 %d X\r\n%s\r\n" % (status, more), last=False) == b""
    assert ends.connection.sock is not None


def test_the_answer_to_a_head_has_no_body(ends: Ends) -> None:
    ends.far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
    ends.connection.send_request("HEAD", "/", [])
    assert ends.connection.read_response().read_all(MOST) == b""
    assert ends.answered(WHOLE, last=False) == b"ok"


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 twohundred OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked \r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX: a\r\n Content-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nno header at all\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n: nameless\r\n\r\nok",
        b"HTTP/1.1 2\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 X\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5000 + WHOLE,
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5000 + WHOLE,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
    ],
)
def test_what_is_no_answer_is_told_as_such(ends: Ends, answer: bytes) -> None:
    sending = threading.Thread(target=_pour, args=(ends.far, answer), daemon=True)
    sending.start()
    with pytest.raises(http.client.HTTPException) as caught:
        ends.answered(last=False)
    assert not isinstance(caught.value, OSError | http.client.IncompleteRead)
    ends.connection.close()
    ends.far.close()
    sending.join(10)


def _send_each(far: socket.socket, pieces: list[bytes]) -> None:
    for piece in pieces:
        far.sendall(piece)


def _pour(far: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + WHOLE,
        b"HTTP/1.1 200\r\ncontent-length:2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length:\t2 \r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Type: multipart/mixed\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Type: multipart/mixed; boundary=b\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"
        b'2;name="a;b"\r\nok\r\n000\r\nX: 1\r\nY: 2\r\n\r\n',
        b"HTTP/1.1 200 OK\r\nWarning: a\r\nWarning: b\r\nContent-Length: 2\r\n\r\nok",
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_seldom_said_is_understood(ends: Ends, answer: bytes, at_once: bool) -> None:
    pieces = [answer] if at_once else [answer[at : at + 1] for at in range(len(answer))]
    sending = threading.Thread(target=_send_each, args=(ends.far, pieces), daemon=True)
    sending.start()
    assert ends.answered(last=False) == b"ok"
    sending.join(10)
    assert ends.connection.sock is not None


@pytest.mark.security
@pytest.mark.parametrize(
    "endless",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 20),
        b"HTTP/1.1 200 OK\r\n" + b"X: %s\r\n" % (b"x" * 60_000) * 90,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + b"x" * 90_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: 1\r\n" * 20_000,
    ],
    ids=["header", "headers", "chunk extension", "trailers"],
)
def test_heads_and_what_stands_between_chunks_have_an_end(ends: Ends, endless: bytes) -> None:
    sending = threading.Thread(target=_pour, args=(ends.far, endless), daemon=True)
    sending.start()
    with pytest.raises(http.client.HTTPException) as caught:
        ends.answered(last=False)
    assert isinstance(caught.value, ProtocolError | http.client.LineTooLong)
    ends.connection.close()
    ends.far.close()
    sending.join(10)


@pytest.mark.security
@pytest.mark.parametrize(
    "head",
    [b"", b"Content-Length: 99999999\r\n", b"Transfer-Encoding: chunked\r\n"],
    ids=["to the end", "by length", "by chunks"],
)
def test_a_body_has_a_limit(ends: Ends, head: bytes) -> None:
    body = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n" if b"chunked" in head else b"x" * (1 << 20)
    endless = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body * 2
    sending = threading.Thread(target=_pour, args=(ends.far, endless), daemon=True)
    sending.start()
    with pytest.raises(BodyTooLong, match="larger than 1048576 bytes"):
        ends.answered(last=False)
    ends.connection.close()
    ends.far.close()
    sending.join(10)


@pytest.mark.thorough
@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_a_cut_is_never_taken_for_an_end(cut: int) -> None:
    with pair() as ends, pytest.raises((http.client.IncompleteRead, ConnectionError)) as caught:
        ends.answered(WHOLE[:cut])
    assert isinstance(caught.value, ConnectionError) == (cut == 0)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


@pytest.mark.parametrize("cut", range(1, len(CHUNKED)))
def test_a_cut_between_chunks_is_never_taken_for_an_end(cut: int) -> None:
    with pair() as ends, pytest.raises(http.client.IncompleteRead):
        ends.answered(CHUNKED[:cut])


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_a_body_is_the_same_however_it_was_framed_and_cut(parts: list[bytes], cuts: list[int]) -> None:
    framed = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    framed += b"".join(b"%x;ext\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nA: b\r\n\r\n"
    pieces, at, turn = [], 0, 0
    while at < len(framed):
        size = cuts[turn % len(cuts)]
        pieces.append(framed[at : at + size])
        at, turn = at + size, turn + 1
    with pair() as ends:
        sending = threading.Thread(target=_send_each, args=(ends.far, pieces), daemon=True)
        sending.start()
        assert ends.answered(last=False) == b"".join(parts)
        sending.join(10)
        assert ends.answered(WHOLE, last=False) == b"ok"


def test_a_plain_request_through_a_proxy_names_its_server() -> None:
    near, far = socket.socketpair()
    proxied = Connection("http://h:1", timeout=1, proxy="http://me:p%40ss@p:3", dial=lambda *_: near)
    proxied.sock = near
    proxied.send_request("GET", "/x", [])
    assert far.recv(999) == (
        b"GET http://h:1/x HTTP/1.1\r\nAccept-Encoding: identity\r\nHost: h:1\r\n"
        b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
    )
    near.close()
    far.close()


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://a.test", "http://plain:1"),
        ("https://a.test", "http://tls:2"),
        ("https://[fd00::1]:6443", ""),
        ("https://b.test:8443", ""),
        ("https://localhost:8443", ""),
    ],
)
def test_a_proxy_is_chosen_by_scheme_and_exceptions(url: str, proxy: str) -> None:
    environ = {"http_proxy": "plain:1", "HTTPS_PROXY": "http://tls:2", "NO_PROXY": "fd00::/8, b.test:8443"}
    assert proxy_for(url, environ) == proxy


def test_a_service_behind_a_proxy_of_the_environment_is_asked_through_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listening(tell(b"{}")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        answer = outbound_http.request("GET", "http://loki.test/x", seconds=5, max_bytes=9)
        assert (answer.status, answer.body) == (200, b"{}")
        assert proxy.heads[0].startswith(b"GET http://loki.test/x HTTP/1.1\r\n")
        with pytest.raises(NotAllowed):  # a proxy would resolve the name again, out of our sight
            outbound_http.request("GET", "http://loki.test/x", seconds=5, max_bytes=9, policy=PUBLIC)
        assert proxy.connections == 1


@pytest.mark.parametrize("proxy", ["https://p.test:1", "http://p.test:99999", "socks5://"])
def test_a_proxy_that_cannot_be_used_is_an_error_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(OSError, match=r"unsupported proxy .*\(use http://"):
        outbound_http.request("GET", "http://loki.test/x", seconds=5, max_bytes=9)


@pytest.mark.thorough
@pytest.mark.security
def test_a_body_that_comes_for_ever_ends_with_the_time_of_the_operation() -> None:
    def drip(server: Listener, line: socket.socket) -> None:
        server.head(line)
        line.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(200):
                line.sendall(b"1\r\nx\r\n")
                time.sleep(0.05)

    with listening(drip) as server, pytest.raises(TimeoutError, match=r"within 0.5 s"):
        outbound_http.request("GET", server.url, seconds=0.5, max_bytes=1 << 20)
