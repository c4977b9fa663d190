"""A proxy in front of a real S3 server that refuses, lies or breaks off, as told: for what must never be lost."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import urlsplit

_HOP = ("connection", "transfer-encoding", "keep-alive", "expect", "content-length", "date", "server")
_CHECKSUMS = ("content-md5", "x-amz-checksum", "x-amz-sdk-checksum")


class Fault(StrEnum):
    """What the proxy does instead of passing a request on."""

    NO_BUCKET = "404 NoSuchBucket"
    FORBIDDEN = "403 AccessDenied"
    BROKEN = "500 InternalError"
    ERROR_IN_200 = "200 with an <Error> body"
    NOTHING_STORED = "200, and nothing is stored"
    OTHER_BYTES = "200, and other bytes are stored"
    CUT_REQUEST = "the connection ends in the middle of the request"
    CUT_ANSWER = "the connection ends in the middle of the answer"


def error_body(code: str) -> bytes:
    """Return the body of an S3 error."""
    text = f"<Error><Code>{code}</Code><Message>no</Message><RequestId>1</RequestId></Error>"
    return b'<?xml version="1.0" encoding="UTF-8"?>' + text.encode()


Chosen = Callable[[str, str], bool]


class FaultyStore(ThreadingHTTPServer):
    """The proxy; `fault` happens to the requests that `chosen` picks by method and target."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.fault: Fault | None = None
        self.chosen: Chosen = is_write
        self.seen: list[tuple[str, str]] = []

    def handle_error(self, *_: Any) -> None:
        """Say nothing: connections end here on purpose."""


def is_write(method: str, target: str) -> bool:
    """Pick whatever stores something."""
    return method in ("PUT", "POST")


def everything(method: str, target: str) -> bool:
    """Pick every request."""
    return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyStore

    def _serve(self) -> None:
        store = self.server
        store.seen.append((self.command, self.path))
        fault = store.fault if store.chosen(self.command, self.path) else None
        length = int(self.headers.get("content-length") or 0)
        if fault is Fault.CUT_REQUEST:
            self.rfile.read(length // 2)
            self._hang_up()
            return
        body = self.rfile.read(length)
        answers = {
            Fault.NO_BUCKET: (404, "NoSuchBucket"),
            Fault.FORBIDDEN: (403, "AccessDenied"),
            Fault.BROKEN: (500, "InternalError"),
            Fault.ERROR_IN_200: (200, "InternalError"),
        }
        if fault in answers:
            status, code = answers[fault]
            self._answer(status, {"content-type": "application/xml"}, error_body(code))
        elif fault is Fault.NOTHING_STORED:
            self._answer(200, {"etag": '"d41d8cd98f00b204e9800998ecf8427e"'}, b"")
        else:
            self._pass_on(fault, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def _pass_on(self, fault: Fault | None, body: bytes) -> None:
        headers = {key: value for key, value in self.headers.items() if key.lower() not in _HOP}
        if fault is Fault.OTHER_BYTES and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
            headers = {key: value for key, value in headers.items() if not key.lower().startswith(_CHECKSUMS)}
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=30)
        try:
            upstream.request(self.command, self.path, body or None, headers)
            got = upstream.getresponse()
            content = got.read()
            kept = {key: value for key, value in got.getheaders() if key.lower() not in _HOP}
            length = got.getheader("content-length") if self.command == "HEAD" else None
        finally:
            upstream.close()
        if fault is Fault.CUT_ANSWER:
            self._cut(got.status, kept, content)
        else:
            self._answer(got.status, kept, content, length)

    def _answer(self, status: int, headers: dict[str, str], body: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _cut(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send half of the answer: half of the body where there is one, else half of the head."""
        if body and self.command != "HEAD":
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
        else:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nETa")
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def faulty(upstream: str) -> Iterator[FaultyStore]:
    """Run the proxy in front of a server."""
    store = FaultyStore(upstream)
    thread = threading.Thread(target=lambda: cast(Any, store).serve_forever(poll_interval=0.05), daemon=True)
    thread.start()
    try:
        yield store
    finally:
        store.shutdown()
        thread.join(10)
        store.server_close()
