"""HTTP/1.1 over a real pair of sockets: heads, bodies, ends, and answers that are none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from mpijob.backends.kubernetes.client.http1 import (
    Body,
    Connection,
    ConnectionClosed,
    Head,
    IncompleteRead,
    InvalidRequest,
    ProtocolError,
)

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


def asked(connection: Connection, body: bytes) -> Head:
    connection.put("POST", "/", [], body)
    return connection.head()


def nothing_came(far: socket.socket) -> bool:
    far.setblocking(False)
    with pytest.raises(BlockingIOError):
        far.recv(1)
    return True


def test_a_request_has_its_headers_and_its_body(ends: tuple[Connection, socket.socket]) -> None:
    connection, far = ends
    connection.put("POST", "/api?a=b", [("Host", "h:1"), ("Content-Length", "2")], b"hi")
    assert far.recv(999) == b"POST /api?a=b HTTP/1.1\r\nHost: h:1\r\nContent-Length: 2\r\n\r\nhi"


@pytest.mark.security
@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x7fb"])
def test_a_header_cannot_smuggle_another_one_in(ends: tuple[Connection, socket.socket], value: str) -> None:
    with pytest.raises(InvalidRequest):
        ends[0].put("GET", "/", [("Authorization", value)], None)
    assert nothing_came(ends[1])


@pytest.mark.security
@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: 1", "/ä", "/a\tb", "/\x7f"])
def test_an_address_cannot_end_its_line(ends: tuple[Connection, socket.socket], target: str) -> None:
    with pytest.raises(InvalidRequest):
        ends[0].put("GET", target, [], None)
    assert nothing_came(ends[1])


@pytest.mark.parametrize("method", ["HEAD", "CONNECT", "OPTIONS", "GET /x HTTP/1.1\r\nX:"])
def test_what_would_be_answered_in_another_way_is_not_asked(
    ends: tuple[Connection, socket.socket], method: str
) -> None:
    with pytest.raises(InvalidRequest):
        ends[0].put(method, "/", [], None)
    assert nothing_came(ends[1])


def test_a_request_that_the_server_cuts_short_is_answered_all_the_same(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, far = ends
    far.sendall(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    far.close()
    connection.put("POST", "/", [], b"x" * (1 << 22))
    assert connection.head().status == 413


def test_a_request_that_is_cut_and_not_answered_is_told_as_cut(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, far = ends
    far.close()
    with pytest.raises((ConnectionError, ConnectionClosed)):
        asked(connection, b"x" * (1 << 22))


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
        b"HTTP/1.1 200 OK\r\nConnection: Close, X-Trace\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
def test_a_line_that_ends_with_its_answer_is_not_kept(
    ends: tuple[Connection, socket.socket], answer: bytes
) -> None:
    connection = answered(ends, answer)
    assert connection.body(connection.head()) == b"ok"
    assert not connection.open


@pytest.mark.parametrize("more", [b"", b"Content-Length: 7\r\n", b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_none(
    ends: tuple[Connection, socket.socket], status: int, more: bytes
) -> None:
    connection = answered(ends, b"HTTP/1.1 %d X\r\n%s\r\n" % (status, more), last=False)
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
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 16 + b"\r\n",
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
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_told_as_such(ends: tuple[Connection, socket.socket], answer: bytes) -> None:
    connection = answered(ends, answer)
    with pytest.raises(ProtocolError):
        connection.body(connection.head())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + WHOLE,
        b"HTTP/1.1 200\r\ncontent-length:2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"
        b'2;name="a;b"\r\nok\r\n000\r\nX: 1\r\nY: 2\r\n\r\n',
        b"HTTP/1.1 200 OK\r\nWarning: a\r\nWarning: b\r\nContent-Length: 2\r\n\r\nok",
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_seldom_said_is_understood(
    ends: tuple[Connection, socket.socket], answer: bytes, at_once: bool
) -> None:
    pieces = [answer] if at_once else [answer[at : at + 1] for at in range(len(answer))]
    sending = threading.Thread(target=answered, args=(ends, *pieces), kwargs={"last": False}, daemon=True)
    sending.start()
    connection = ends[0]
    assert connection.body(connection.head()) == b"ok"
    sending.join(10)
    assert connection.open


def test_a_header_that_is_repeated_is_one_list() -> None:
    head = Head.read(b"HTTP/1.1 200 OK\r\nWarning: a\r\nWARNING:\tb \r\nContent-Length: 2")
    assert head.headers["warning"] == "a, b"


def fed(body: Body, data: bytes) -> bytes:
    return b"".join(body.feed(data[at : at + 100]) for at in range(0, len(data), 100))


@pytest.mark.security
@pytest.mark.parametrize("endless", [b"5;" + b"x" * 9000, b"0\r\n" + b"X: 1\r\n" * 20000])
def test_what_stands_between_the_parts_of_an_answer_has_an_end(endless: bytes) -> None:
    body = Body(Head(200, {}, chunked=True))
    with pytest.raises(ProtocolError):
        fed(body, endless)


@pytest.mark.security
def test_a_head_without_end_is_not_read_for_ever(ends: tuple[Connection, socket.socket]) -> None:
    connection, far = ends
    endless = threading.Thread(target=_pour, args=(far,), daemon=True)
    endless.start()
    with pytest.raises(ProtocolError, match="does not end"):
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
    with pytest.raises(IncompleteRead):
        connection.body(head)
    with pytest.raises(ConnectionClosed):
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
