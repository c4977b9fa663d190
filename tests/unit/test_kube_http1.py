"""HTTP/1.1 over a real pair of sockets: heads, bodies, ends, and answers that are none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from mpijob.backends.kubernetes.http1 import Body, Connection, Cut, Garbled, Head, HungUp

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    near, far = socket.socketpair()
    near.settimeout(10)
    connection = Connection(near)
    yield connection, far
    connection.close()
    far.close()


def answered(ends: tuple[Connection, socket.socket], *answers: bytes, last: bool = True) -> Connection:
    connection, far = ends
    for answer in answers:
        far.sendall(answer)
    if last:
        far.shutdown(socket.SHUT_WR)
    return connection


def test_a_request_has_its_headers_and_its_body(ends: tuple[Connection, socket.socket]) -> None:
    connection, far = ends
    connection.put("POST", "/api?a=b", [("Host", "h:1"), ("Content-Length", "2")], b"hi")
    assert far.recv(999) == b"POST /api?a=b HTTP/1.1\r\nHost: h:1\r\nContent-Length: 2\r\n\r\nhi"


@pytest.mark.security
@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb"])
def test_a_header_cannot_smuggle_another_one_in(ends: tuple[Connection, socket.socket], value: str) -> None:
    with pytest.raises(Garbled):
        ends[0].put("GET", "/", [("Authorization", value)], None)


def test_answers_follow_one_another_over_one_line(ends: tuple[Connection, socket.socket]) -> None:
    chunks = b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    read = []
    for answer in (WHOLE, b"HTTP/1.1 100 Continue\r\n\r\n" + chunks, WHOLE):
        connection = answered(ends, answer, last=False)
        head = connection.head()
        read.append((head.status, connection.body(head), connection.open))
    assert read == [(200, b"ok", True), (404, b"abc", True), (200, b"ok", True)]


def test_an_answer_that_nobody_asked_for_ends_the_line(ends: tuple[Connection, socket.socket]) -> None:
    connection = answered(ends, WHOLE + WHOLE)
    assert connection.body(connection.head()) == b"ok"
    assert not connection.open


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
    ],
)
def test_a_line_that_ends_with_its_answer_is_not_kept(
    ends: tuple[Connection, socket.socket], answer: bytes
) -> None:
    connection = answered(ends, answer)
    assert connection.body(connection.head()) == b"ok"
    assert not connection.open


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_none(ends: tuple[Connection, socket.socket], status: int) -> None:
    connection = answered(ends, b"HTTP/1.1 %d X\r\n\r\n" % status, last=False)
    assert connection.body(connection.head()) == b""
    assert connection.open


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
    ],
)
def test_what_is_no_answer_is_told_as_such(ends: tuple[Connection, socket.socket], answer: bytes) -> None:
    connection = answered(ends, answer)
    with pytest.raises(Garbled):
        connection.body(connection.head())


@pytest.mark.security
def test_a_head_without_end_is_not_read_for_ever(ends: tuple[Connection, socket.socket]) -> None:
    connection, far = ends
    endless = threading.Thread(target=_pour, args=(far,), daemon=True)
    endless.start()
    with pytest.raises(Garbled, match="does not end"):
        connection.head()
    connection.close()
    endless.join(10)


def _pour(far: socket.socket) -> None:
    try:
        far.sendall(b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 20))
    except OSError:
        return


def test_a_line_that_ends_too_early_tells_how_far_it_came(ends: tuple[Connection, socket.socket]) -> None:
    connection = answered(ends, WHOLE[:-1])
    head = connection.head()
    with pytest.raises(Cut):
        connection.body(head)
    with pytest.raises(HungUp):
        connection.head()


def test_a_body_with_no_other_end_ends_with_the_line() -> None:
    body = Body(Head(200, {}))
    assert (body.feed(b"a"), body.over, body.feed(b""), body.over) == (b"a", False, b"", True)


def test_waiting_for_an_answer_to_begin_ends_in_time(ends: tuple[Connection, socket.socket]) -> None:
    connection, far = ends
    assert not connection.speaks(0.01)
    far.sendall(WHOLE)
    assert connection.speaks(10)
    assert connection.head().status == 200
    assert connection.taken() == b"ok"
