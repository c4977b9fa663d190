"""The broker's door: POST /v1/fit with a bearer token and a job, answered with numbers; nothing else is served.

Python's own threading server. Tokens are neither logged nor kept. Without TLS it listens on loopback alone.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from mpijob import shapes
from mpijob.admission.fitting import fit
from mpijob.backends.kubernetes.broker import Broker, Unauthenticated
from mpijob.backends.kubernetes.broker_client import with_seen
from mpijob.errors import HTTP_STATUS, InvalidJob, Kind, MpiJobError
from mpijob.model import Amounts, Facts, Identity, MPIJob
from mpijob.model.fit import Fit, Seen

PATH = "/v1/fit"
MOST_BYTES = 256 << 10
AT_ONCE = 16
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_log = logging.getLogger(__name__)


class Answer(msgspec.Struct, frozen=True):
    """What is answered: the numbers, and what they mean for the job."""

    seen: Seen
    fit: Fit


class Asked(msgspec.Struct, frozen=True):
    """What is asked."""

    job: MPIJob


class Server(ThreadingHTTPServer):
    """Serves one broker."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, broker: Broker, address: tuple[str, int], tls: tuple[str, str] | None = None) -> None:
        if tls is None and address[0] not in _LOOPBACK:
            raise InvalidJob(
                f"without TLS the broker listens on this machine alone, not on {address[0]}",
                hint="give --certificate and --key, or leave --address out",
            )
        super().__init__(address, _Handler)
        self.broker = broker
        self.room = threading.BoundedSemaphore(AT_ONCE)
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(*tls)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what broke; a visitor who goes away breaks nothing."""
        _log.debug("a request ended early", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Say that it answers."""
        known = self.path in ("/healthz", "/readyz")
        self._send(200 if known else 404, {"status": "ok" if known else "not found"})

    def do_POST(self) -> None:
        """Answer a question."""
        if self.path.partition("?")[0] != PATH:
            self._send(404, {"code": "NOT_FOUND", "message": f"there is only {PATH}"}, close=True)
        elif not self.server.room.acquire(blocking=False):
            self._send(503, {"code": "BACKEND_ERROR", "message": "too many ask at once"}, close=True)
        else:
            try:
                self._told(self._answer)
            finally:
                self.server.room.release()

    def _answer(self) -> Answer:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated("a bearer token is needed")
        job = self._job()
        return answer(self.server.broker, token.strip(), job)

    def _job(self) -> MPIJob:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            raise InvalidJob(f"a body of at most {MOST_BYTES >> 10} KiB with its length is needed")
        try:
            return shapes.decode(self.rfile.read(int(length)), Asked).job
        except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
            raise InvalidJob(f"the body is no job: {error}") from error

    def _told(self, work: Callable[[], Answer]) -> None:
        try:
            self._send(200, msgspec.to_builtins(work()))
        except Unauthenticated as error:
            self._send(401, _problem(error), close=True)
        except MpiJobError as error:
            self._send(HTTP_STATUS[error.kind], _problem(error), close=error.kind is Kind.INVALID)
        except Exception:  # the outermost place: whatever it is, the asker gets an answer
            _log.exception("a question could not be answered")
            self._send(500, {"code": "INTERNAL", "message": "the broker could not answer"}, close=True)

    def _send(self, status: int, body: Any, *, close: bool = False) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        if close:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: addresses of a request are nobody's business."""


def answer(broker: Broker, token: str, job: MPIJob) -> Answer:
    """Return the numbers for a user's job and what they mean."""
    seen = broker.seen(token, job)
    bare = Facts(place=seen.place, capacity=Amounts(), free=Amounts(), room_known=False)
    return Answer(seen, fit(job, Identity(""), with_seen(bare, seen)))


def _problem(error: MpiJobError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "hint": error.hint}
