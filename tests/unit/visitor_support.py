"""A visitor of the page's server with a job whose results lie in a bucket, and servers for them to be led to."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.unit.cluster_support import a_job
from tests.unit.kube_store import Store
from tests.unit.preflight_support import SERVED

from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.formats.kubernetes import mpijob
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.model import JobRef, Volume, VolumeKind
from mpijob.settings import Settings

REF = JobRef("team-cv", "bert")
SERVER = "https://192.0.2.1:6443"
VISITOR = Access(server=SERVER, token="visitor", user="a visitor")
KEYS = {"AWS_ACCESS_KEY_ID": "visitor", "AWS_SECRET_ACCESS_KEY": "theirs"}


def cluster(endpoint: str, keys: dict[str, str] = KEYS, bucket: str = "data", **more: str) -> Store:
    """Return a cluster with a job that wrote to /out, and the data connection that says where that is."""
    store = Store()
    volume = Volume(mount="/out", kind=VolumeKind.S3, source="lake/results")
    (document,) = mpijob.write(a_job(volumes=(volume,)), Shape(service_image="services:1"))
    store.create(resources.MPIJOB.path("team-cv"), document)
    data = {"AWS_S3_ENDPOINT": endpoint, "AWS_S3_BUCKET": bucket, **keys, **more}
    secret = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    store.create(resources.SECRET.path("team-cv"), {"metadata": {"name": "lake"}, "data": secret})
    return store


def seen_by(store: Store, *more: Any) -> KubernetesBackend:
    """Return the engine as the page's server opens it for a visitor of this cluster."""
    backend = KubernetesBackend(Settings(home="/nowhere", kubeconfig="/nowhere"), VISITOR, *more)
    backend._api = store
    backend._reader.__dict__["served"] = SERVED
    return backend


Talk = Callable[[socket.socket], None]


class Listener:
    """A server on this machine that counts who connects, and says what it is told to say."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.connections = 0
        self.heads: list[bytes] = []
        self._open: list[socket.socket] = []

    def serve(self) -> None:
        """Accept until the socket is closed."""
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(line)
            threading.Thread(target=self._served, args=(line,), daemon=True).start()

    def _served(self, line: socket.socket) -> None:
        with suppress(OSError), line:
            self._talk(line)

    def head(self, line: socket.socket) -> bytes:
        """Return the head of a request, and remember it."""
        head = b""
        while b"\r\n\r\n" not in head and (piece := line.recv(65536)):
            head += piece
        self.heads.append(head)
        return head

    def close(self) -> None:
        """Let everybody go."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for line in self._open:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)


@contextmanager
def listening(talk: Callable[[Listener, socket.socket], None] | None = None) -> Iterator[Listener]:
    """Run such a server; without words of its own it tells a secret to whoever asks."""
    server: Listener

    def chosen(line: socket.socket) -> None:
        (talk or tell(b"TOP-SECRET"))(server, line)

    server = Listener(chosen)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(10)


def tell(body: bytes, status: str = "200 OK", headers: str = "") -> Callable[[Listener, socket.socket], None]:
    """Return how to answer each request with a body."""

    def talk(server: Listener, line: socket.socket) -> None:
        server.head(line)
        lines = f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        line.sendall(lines.encode() + body)

    return talk


def closed_port() -> int:
    """Return a port of this machine where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
