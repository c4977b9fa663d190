"""HTTP/1.1 as far as an API server speaks it: a request out, an answer in, over one line.

`http.client` reads headers with the `email` package, and loading that takes longer than a list of jobs
(docs/decisions/0016). What may be repeated, and over which connection, is decided by `http`.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterable

import msgspec

PIECE = 1 << 16  # more than TLS hands over at once: nothing is left behind in it
_LONGEST_HEAD = 1 << 16
_LONGEST_FRAME = 1 << 12  # a line between two chunks: a length, and what somebody may add to it
_MOST_INTERIM = 16
_HEX = frozenset(b"0123456789abcdefABCDEF")
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})  # the answer to a HEAD would be read wrongly
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")  # of small letters
_CONTROLS = frozenset(map(chr, (*range(9), *range(10, 32), 127)))
_BODILESS = (204, 304)
_UNREADY = (ssl.SSLWantReadError, BlockingIOError)


class IncompleteRead(EOFError):
    """The line ended before the answer did."""


class ConnectionClosed(IncompleteRead):
    """The line ended before the answer began."""


class ProtocolError(ValueError):
    """What came is no answer in HTTP."""


class InvalidRequest(ValueError):
    """What is to be sent is no request in HTTP, or would be more than one; nothing of it was sent."""


class Head(msgspec.Struct, frozen=True):
    """How an answer begins; the names of headers are in small letters."""

    status: int
    headers: dict[str, str]
    chunked: bool = False
    length: int | None = None  # of the body; None when it has no other end than the line's
    lasting: bool = True  # whether the line may be used again

    @classmethod
    def read(cls, raw: bytes) -> Head:
        """Return what the bytes before the body say."""
        first, *lines = raw.decode("latin-1").split("\r\n")
        version, status = _first(first)
        headers = _headers(lines)
        coded = headers.get("transfer-encoding", "").lower()
        if coded not in ("", "chunked"):
            raise ProtocolError("the answer is packed in a way that nobody asked for")
        chunked = bool(coded) and status not in _BODILESS
        length = None if chunked else _length(status, headers.get("content-length"))
        said = headers.get("connection", "").lower()
        ends = "close" in said.replace(",", " ").split() or version == "HTTP/1.0"
        doubtful = (
            bool(coded) and "content-length" in headers
        )  # two ends: somebody between us may mean the other
        lasting = not ends and not doubtful and (chunked or length is not None)
        return cls(status, headers, chunked, length, lasting)


def _first(line: str) -> tuple[str, int]:
    """Return version and status of an answer's first line."""
    version, _, told = line.partition(" ")
    code, rest = told[:3], told[3:4]
    if (
        version[:-1] != "HTTP/1."
        or not code.isdecimal()
        or not 100 <= int(code) < 600
        or rest not in ("", " ")
    ):
        raise ProtocolError("the answer does not begin as HTTP does")
    return version, int(code)


def _headers(lines: list[str]) -> dict[str, str]:
    """Return the headers by name; the values of those that are repeated are put in one line, as HTTP has it."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if (
            not colon or not name or not _TOKEN.issuperset(name)
        ):  # a line that continues another is none either
            raise ProtocolError("the answer's head has a line that is no header")
        if name in headers and name != "content-length":
            value = f"{headers[name]}, {value}"
        elif headers.get(name, value) != value:
            raise ProtocolError("the answer has two lengths")
        headers[name] = value
    return headers


def _length(status: int, said: str | None) -> int | None:
    if status in _BODILESS:
        return 0
    if said is None:
        return None
    if not said.isdecimal() or len(said) > 18:
        raise ProtocolError("the answer has no sensible length")
    return int(said)


class Connection:
    """One line, and what has arrived over it and was not asked for yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._ahead = b""
        self.open = True

    def close(self) -> None:
        """Close the line."""
        self.open = False
        self.sock.close()

    def put(self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> None:
        """Send a request; one that the server has cut short is over, too, if its answer is there."""
        if method not in _METHODS or not target.isascii() or not target.isprintable() or " " in target:
            raise InvalidRequest(f"{method} {target!a} is no request")
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        in_one_line(lines)
        try:
            self.sock.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        except ConnectionError:
            if not body or not readable(self.sock, time.monotonic()):
                raise

    def head(self) -> Head:
        """Return the beginning of the next answer; an interim one is passed over."""
        for _ in range(_MOST_INTERIM):
            end = self._ahead.find(b"\r\n\r\n")
            while end < 0:
                self._more()
                end = self._ahead.find(b"\r\n\r\n")
            head = Head.read(self._ahead[:end])
            self._ahead = self._ahead[end + 4 :]
            if head.status >= 200:
                return head
            if head.status == 101:
                raise ProtocolError("the server changes to another protocol, which nobody asked for")
        raise ProtocolError("the answer does not come to its beginning")

    def _more(self) -> None:
        piece = self.sock.recv(PIECE)
        if not piece:
            raise (
                IncompleteRead("the line ended in an answer's head")
                if self._ahead
                else ConnectionClosed("the line ended")
            )
        self._ahead += piece
        if len(self._ahead) > _LONGEST_HEAD + PIECE:
            raise ProtocolError("the answer's head does not end")

    def body(self, head: Head, *, awaited: int = 0) -> bytes:
        """Return the whole body of an answer, after which so many others are awaited.

        The line is closed when it cannot be used again.
        """
        body, parts = Body(head), []
        if not body.over and self._ahead:
            parts.append(body.feed(self.taken()))
        while not body.over:
            parts.append(body.feed(self.sock.recv(PIECE)))
        self._ahead = body.surplus or self._ahead
        if not head.lasting or (self._ahead and not awaited):
            self.close()
        return b"".join(parts)

    def taken(self) -> bytes:
        """Return what has arrived already, and forget it."""
        ahead, self._ahead = self._ahead, b""
        return ahead

    def speaks(self, seconds: float | None) -> bool:
        """Return whether anything arrives within this time, be it the end."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self.sock.settimeout(0)
        while not self._ahead and readable(self.sock, deadline):
            try:
                self._more()
            except _UNREADY:  # TLS had something to say for itself, such as a session ticket
                continue
        return bool(self._ahead)


def in_one_line(headers: Iterable[str]) -> None:
    """Refuse a header that would be several, or that no server takes."""
    if not all(_CONTROLS.isdisjoint(header) for header in headers):
        raise InvalidRequest("a header would have more than one line")


class Body:
    """Takes away what HTTP puts around a body; `over` when it has come to its end, `surplus` what came after."""

    def __init__(self, head: Head) -> None:
        self._chunked = head.chunked
        self._length = head.length
        self._buffer = b""
        self._left = 0  # of the present chunk, with its two bytes of end
        self._trailing = False
        self._trailed = 0
        self.over = not head.chunked and head.length == 0
        self.surplus = b""

    def feed(self, data: bytes) -> bytes:
        """Return what is in the next bytes of the line; no bytes are the line's end."""
        if self._chunked:
            return self._unframed(data)
        if self._length is None:
            self.over = not data
            return data
        if not data:
            raise IncompleteRead(f"the line ended {self._length} bytes before the answer's end")
        data, self.surplus = data[: self._length], data[self._length :]
        self._length -= len(data)
        self.over = self._length == 0
        return data

    def _unframed(self, data: bytes) -> bytes:
        if not data:
            raise IncompleteRead("the line ended between two parts of an answer")
        buffer, at, parts = self._buffer + data, 0, []
        while not self.over and at < len(buffer):
            if self._left:
                inside, taken = max(self._left - 2, 0), min(self._left, len(buffer) - at)
                parts.append(buffer[at : at + min(inside, taken)])
                self._check_end(buffer[at + inside : at + taken])
                at, self._left = at + taken, self._left - taken
                continue
            end = buffer.find(b"\r\n", at, at + _LONGEST_FRAME)
            if end < 0:
                self._check_frame(len(buffer) - at)
                break
            self._frame(buffer[at:end])
            at = end + 2
        self._buffer = buffer[at:]
        if self.over:
            self.surplus = self._buffer
        return b"".join(parts)

    def _check_end(self, end: bytes) -> None:
        """Refuse a chunk that does not end where it said; of its end both bytes may be there, one, or none."""
        if end != b"\r\n"[max(2 - self._left, 0) :][: len(end)]:
            raise ProtocolError("a part of the answer is longer than it says")

    def _check_frame(self, size: int) -> None:
        if size >= _LONGEST_FRAME:
            raise ProtocolError("a part of the answer has no sensible length")

    def _frame(self, line: bytes) -> None:
        """Take a line between two chunks: how long the next one is or, after the last one, what trails."""
        if self._trailing:
            self.over = not line
            self._trailed += len(line) + 2
            if self._trailed > _LONGEST_HEAD:
                raise ProtocolError("what trails the answer does not end")
            return
        said = line.partition(b";")[0].rstrip(b" \t")
        if not said or not _HEX.issuperset(said) or len(said) > 15:
            raise ProtocolError("a part of the answer has no sensible length")
        size = int(said, 16)
        self._trailing = size == 0
        self._left = size + 2 if size else 0


def readable(line: socket.socket, deadline: float | None) -> bool:
    """Return whether the line has something to say by then; of one that is idle that can only be its end."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(None if deadline is None else max(deadline - time.monotonic(), 0.0) * 1000))
