"""The admission webhook: an HTTPS server that an API server asks about each job before it keeps it.

It is Python's own threading server with TLS 1.2 or newer: a request is one thread's work of a millisecond or two,
and no framework is needed for three paths. Certificates are renewed while it serves; it may be killed at any time.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from mpijob import shapes
from mpijob.backends.kubernetes.api import Api, ApiError
from mpijob.backends.kubernetes.kubeconfig import load
from mpijob.client.ending import until_ended
from mpijob.cluster import reviewing, webhook_keys
from mpijob.cluster.certificates import Keys
from mpijob.cluster.reviewing import Known
from mpijob.cluster.webhook_facts import Knowledge
from mpijob.cluster.webhook_objects import NAME

_LOG = logging.getLogger(__name__)
_PATHS = ("/defaults", "/restricted", "/judge", "/strict", "/open")
_LARGEST = 3 << 20  # an object of etcd's largest size, twice
_GREETING_SECONDS, _SILENT_SECONDS = 5.0, 90.0
_DECODER = shapes.decoder(dict[str, Any])


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the webhook is run; `address` is set where it is no service of the cluster (see `names`)."""

    name: str = NAME
    namespace: str = "mpijob-system"
    host: str = "0.0.0.0"  # noqa: S104 - the API server comes from outside the pod
    port: int = 8443
    address: str = ""
    kubeconfig: str = ""
    context: str = ""
    renew_seconds: float = 60.0


def names(options: Options) -> tuple[str, ...]:
    """Return the names that the certificate is for."""
    if options.address:
        return (options.address,)
    service = f"{options.name}.{options.namespace}"
    return (f"{service}.svc", service, f"{service}.svc.cluster.local")


class Server(ThreadingHTTPServer):
    """Serves reviews; `known` is what they are judged by, None until it is there."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int]) -> None:
        self.known: Known | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        super().__init__(address, Handler)

    def use(self, keys: Keys) -> None:
        """Serve these keys to every connection that begins from now on."""
        with tempfile.NamedTemporaryFile(dir=_private_place()) as file:
            file.write(keys.certificate + keys.key)
            file.flush()
            self.context.load_cert_chain(file.name)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Greet in the connection's own thread: a client that says nothing holds up nobody."""
        request.settimeout(_GREETING_SECONDS)
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            wrapped = self.context.wrap_socket(request, server_side=True)
        except (OSError, ValueError):
            return
        wrapped.settimeout(_SILENT_SECONDS)
        try:
            super().finish_request(wrapped, client_address)
        finally:
            wrapped.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is no news."""
        _LOG.debug("a connection ended", exc_info=sys.exc_info())


class Handler(BaseHTTPRequestHandler):
    """Answers what an API server and a kubelet ask."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Answer the probes: alive always, ready when everything is known."""
        ready = self.path == "/healthz" or (self.path == "/readyz" and self.server.known is not None)
        self._send(200 if ready else 503, b"ok\n" if ready else b"not ready\n", "text/plain")

    def do_POST(self) -> None:
        """Answer a review."""
        length = int(self.headers.get("Content-Length") or 0)
        if self.path.partition("?")[0] not in _PATHS or not 0 < length <= _LARGEST:
            self.close_connection = True
            self._send(404 if length <= _LARGEST else 413, b"", "text/plain")
            return
        known = self.server.known
        if known is None:
            self._send(503, b"not ready\n", "text/plain")
            return
        try:
            review = _DECODER.decode(self.rfile.read(length))
            answer = reviewing.answer(self.path.partition("?")[0], review, known)
        except (msgspec.DecodeError, KeyError, TypeError):
            self._send(400, b"this is no AdmissionReview\n", "text/plain")
            return
        self._send(200, msgspec.json.encode(answer), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the API server's audit log tells who asked for what."""


def _private_place() -> str | None:
    """Return a directory in memory, where there is one: a key need not touch a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - the file is mkstemp's, 0600


def keep_keys(
    api: Api, options: Options, use: Callable[[Keys], None], before: Keys | None = None
) -> Keys | None:
    """Renew the keys when they are due and let the API server know; what fails now is tried again later."""
    try:
        keys = webhook_keys.ensure(api, options.namespace, names(options), name=options.name)
        webhook_keys.publish(api, keys.bundle, name=options.name)
    except ApiError as error:
        _LOG.warning("the certificates could not be kept: %s", error)
        return before
    if keys != before:
        use(keys)
    return keys


def serve(options: Options, stop: threading.Event) -> None:
    """Serve until somebody says stop."""
    api = Api(load(path=options.kubeconfig, context=options.context))
    server = Server((options.host, options.port))
    with Knowledge(api) as knowledge:
        keys = None
        while keys is None and not stop.is_set():
            keys = keep_keys(api, options, server.use)
            stop.wait(0 if keys else 1.0)
        threading.Thread(target=server.serve_forever, daemon=True, name="webhook").start()
        knowledge.settled(10.0)
        while not knowledge.governed() and not stop.wait(0.2):
            pass  # without the limits everything would be let in: not ready yet
        server.known = knowledge
        _LOG.warning("serving on port %s", server.server_port)
        while not stop.wait(options.renew_seconds):
            keys = keep_keys(api, options, server.use, keys)
        server.shutdown()
    api.close()


def main() -> None:
    """Read the options from the file descriptor that was handed over, and serve."""
    stop = until_ended()
    with os.fdopen(int(sys.argv[1]), "rb") as handed:
        options = shapes.decode(handed.read(), Options)
    serve(options, stop)


if __name__ == "__main__":
    main()
