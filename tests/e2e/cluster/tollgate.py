"""A gate between one service and the API server, which kills the service at a step that a test chooses.

A test may also answer questions itself, for APIs that the bed has not.

A step is a request that changes something. The service is killed either before its request is handed on, or after
it was done and before the answer comes back: the two moments at which a crash leaves something behind.
Leases are no steps (they are renewed all the time), nor are questions for rights.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from testbed import places

from mpijob.formats.kubernetes.metadata.well_known import Document

_NO_STEPS = (
    "leases",
    "subjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectreviews",
    "selfsubjectrulesreviews",
    "tokenreviews",
)
_OWN = ("connection", "transfer-encoding", "content-length", "keep-alive")


class Gate:
    """Where a service passes; `kill_at` counts its steps from 1, 0 lets it live."""

    def __init__(self, kill_at: int = 0, *, after: bool = False) -> None:
        self.kill_at, self.after = kill_at, after
        self.victim: subprocess.Popen[str] | None = None
        self.hit = ""  # the step at which the service was killed
        self.steps: list[str] = []
        self.answers: Callable[[str], Document | None] = lambda path: None  # to questions, by their path
        self._lock = threading.Lock()

    def passes(self, method: str, path: str) -> bool:
        """Count a request; return whether it is the one at which the service dies."""
        what = _step(method, path)
        if not what:
            return False
        with self._lock:
            self.steps.append(what)
            return self.kill_at == len(self.steps)

    def kill(self, method: str, path: str) -> None:
        """Kill the service, and remember where."""
        assert self.victim is not None
        with suppress(ProcessLookupError):
            os.kill(self.victim.pid, signal.SIGKILL)
        self.victim.wait(30)
        self.hit = f"{'after' if self.after else 'before'} {_step(method, path)}"


def _step(method: str, path: str) -> str:
    """Return what a request changes, as `POST events`; "" for one that changes nothing."""
    if method == "GET":
        return ""
    words = path.partition("?")[0].strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[:1] == ["namespaces"] and len(words) > 2:
        words = words[2:]
    kind = words[0] if words else ""
    return "" if kind in _NO_STEPS else f"{method} {'/'.join((kind, *words[2:]))}"


@contextmanager
def opened(kill_at: int = 0, *, after: bool = False) -> Iterator[tuple[Gate, str]]:
    """Give a gate and the kubeconfig that leads through it."""
    gate = Gate(kill_at, after=after)
    folder = places.pki()
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
    server = _Server(("127.0.0.1", 0), _handler(gate, context))
    threading.Thread(target=server.serve_forever, daemon=True, name="gate").start()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(_kubeconfig(f"http://127.0.0.1:{server.server_address[1]}"))
        file.flush()
        try:
            yield gate, file.name
        finally:
            server.shutdown()
            server.server_close()


def _kubeconfig(address: str) -> str:
    named = {"name": "gate"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "gate",
            "clusters": [{**named, "cluster": {"server": address}}],
            "users": [{**named, "user": {}}],
            "contexts": [{**named, "context": {"cluster": "gate", "user": "gate"}}],
        }
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a service that hung up: it was killed, which is what the gate is for."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(gate: Gate, context: ssl.SSLContext) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command == "GET" and (known := gate.answers(self.path.partition("?")[0])) is not None:
                _answer(self, json.dumps(known).encode())
                return
            dies = gate.passes(self.command, self.path)
            if dies and not gate.after:
                gate.kill(self.command, self.path)
                self.close_connection = True
                return
            server = http.client.HTTPSConnection(places.NODE_IP, places.API_PORT, context=context)
            try:
                with suppress(BrokenPipeError, ConnectionError):
                    answer = _asked(server, self, body)
                    if dies:
                        answer.read()
                        gate.kill(self.command, self.path)
                        self.close_connection = True
                        return
                    _hand_back(self, answer)
            finally:
                server.close()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
    request.send_response_only(200)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def _asked(
    server: http.client.HTTPSConnection, request: BaseHTTPRequestHandler, body: bytes
) -> http.client.HTTPResponse:
    headers = {name: value for name, value in request.headers.items() if name.lower() not in (*_OWN, "host")}
    server.request(request.command, request.path, body=body or None, headers=headers)
    return server.getresponse()


def _hand_back(request: BaseHTTPRequestHandler, answer: http.client.HTTPResponse) -> None:
    """Hand an answer on piece by piece: a watch has no end."""
    request.send_response_only(answer.status)
    for name, value in answer.getheaders():
        if name.lower() not in _OWN:
            request.send_header(name, value)
    length = answer.getheader("Content-Length")
    request.send_header(*(("Content-Length", length) if length else ("Transfer-Encoding", "chunked")))
    request.end_headers()
    while piece := answer.read1(1 << 16):
        request.wfile.write(piece if length else b"%x\r\n%s\r\n" % (len(piece), piece))
        request.wfile.flush()
    if not length:
        request.wfile.write(b"0\r\n\r\n")
