"""A small API server on loopback: real TLS, real HTTP, lists in pages, watches that can be cut or frozen.

It speaks as much of the protocol as the client needs; `tests/e2e/cluster/test_api.py` holds the same
client against a real one.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pytest

from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.client.api import Api

MAPS = "/api/v1/namespaces/team-a/configmaps"
Document = dict[str, Any]
A_MAP: Document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}


class Seen(NamedTuple):
    """One request as the server saw it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    peer: str  # the name in the client's certificate

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


class Certificates(NamedTuple):
    """Where the files are."""

    place: Path

    def text(self, name: str) -> str:
        return (self.place / name).read_text()


def make_certificates(place: Path) -> Certificates:
    """Make an authority, the server's certificate and alice's, with openssl."""
    _openssl(place, "req -x509 -nodes -days 2 -keyout ca.key -out ca.crt -subj /CN=test-ca", key="-newkey")
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1,DNS:api.test"), ("alice", "")):
        (place / f"{name}.ext").write_text(extension)
        _openssl(place, f"req -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}", key="-newkey")
        _openssl(
            place,
            f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 "
            f"-extfile {name}.ext -out {name}.crt",
        )
    return Certificates(place)


def _openssl(place: Path, words: str, key: str = "") -> None:
    command = [
        "openssl",
        *words.split(),
        *([key, "ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if key else []),
    ]
    subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=30)


Answer = Callable[["Handler"], None]


class FakeApi:
    """The server: scripted answers first, then the config maps that it keeps."""

    def __init__(self, certificates: Certificates, *, root: str = "") -> None:
        self.certificates = certificates
        self.root = root
        self.requests: list[Seen] = []
        self.script: list[Answer] = []
        self.tokens: set[str] | None = None  # None: everybody may come in
        self.maps = Collection()
        self._server = _Server(self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.place / "server.crt", certificates.place / "server.key")
        context.load_verify_locations(certificates.place / "ca.crt")
        context.verify_mode = ssl.CERT_OPTIONAL
        self._server.context = context
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}{self.root}"

    def access(self, **changed: Any) -> Access:
        fields = {"server": self.url, "ca": self.certificates.text("ca.crt"), "context": "lab", **changed}
        return Access(**fields)

    def says(self, *answers: Answer) -> None:
        """Answer the next requests so."""
        self.script += answers

    def close(self) -> None:
        self.maps.cut()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Collection:
    """Config maps with their history."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.objects: dict[str, Document] = {}
        self.history: list[tuple[int, Document]] = []
        self.forgotten = 0  # versions up to here are compacted
        self.generation = 0  # watches of an older generation are cut
        self.last = 0  # how much of the history those are still told
        self.frozen = False
        self.watching = 0

    def put(self, name: str, **data: str) -> Document:
        with self.changed:
            self.version += 1
            known = self.objects.get(name)
            uid = known["metadata"]["uid"] if known else f"uid-{self.version}"
            metadata = {"name": name, "namespace": "team-a", "uid": uid, "resourceVersion": str(self.version)}
            item: Document = {"metadata": metadata, "data": data}
            self.objects[name] = item
            self._happened("MODIFIED" if known else "ADDED", item)
            return item

    def remove(self, name: str) -> None:
        with self.changed:
            self.version += 1
            item = self.objects.pop(name)
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
            self._happened("DELETED", item)

    def bookmark(self) -> None:
        with self.changed:
            self._happened("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def error(self, code: int, reason: str) -> None:
        with self.changed:
            self._happened("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": reason})

    def _happened(self, kind: str, item: Document) -> None:
        self.history.append((self.version, {"type": kind, "object": item}))
        self.changed.notify_all()

    def forget(self) -> None:
        """Compact the history: who has an older version must list again."""
        with self.changed:
            self.forgotten = self.version

    def cut(self) -> None:
        """Cut every watch."""
        with self.changed:
            self.last = 0 if self.frozen else len(self.history)
            self.generation += 1
            self.frozen = False
            self.changed.notify_all()

    def events(self, since: int) -> Iterator[Document]:
        """Yield what happened after a version, as it happens, until the watches are cut."""
        with self.changed:
            generation, told = self.generation, sum(version <= since for version, _ in self.history)
            self.watching += 1
            self.changed.notify_all()
        try:
            while True:
                with self.changed:
                    while self.generation == generation and (self.frozen or len(self.history) == told):
                        assert self.changed.wait(timeout=30), "a watch that nobody ends"
                    if self.generation != generation and told >= self.last:
                        return
                    event = self.history[told][1]
                told += 1
                yield event
        finally:
            with self.changed:
                self.watching -= 1

    def wait_for_watches(self, count: int = 1) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.watching >= count, timeout=10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext

    def __init__(self, api: FakeApi) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.api = api

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(20)
        try:
            line = self.context.wrap_socket(request, server_side=True)
        except OSError:
            return  # a client that does not trust us
        with suppress(OSError, ValueError):
            Handler(line, client_address, self)
        with suppress(OSError):
            line.close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        api = self.server.api
        parts = urlsplit(self.path)
        self.seen = Seen(
            self.command,
            parts.path,
            dict(parse_qsl(parts.query)),
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(int(self.headers.get("Content-Length") or 0)),
            _name(self.connection),
        )
        api.requests.append(self.seen)
        if api.script:
            api.script.pop(0)(self)
        elif api.tokens is not None and self.seen.token not in api.tokens:
            self.refuse(401, "Unauthorized", "Unauthorized")
        else:
            self._kept(api)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def _kept(self, api: FakeApi) -> None:
        path = self.seen.path.removeprefix(api.root)
        if self.seen.method != "GET":
            self.reply(json.loads(self.seen.body or b"{}"))
        elif path == MAPS and self.seen.query.get("watch"):
            self._watch(api.maps)
        elif path == MAPS:
            self._list(api.maps)
        elif (name := path.removeprefix(f"{MAPS}/")) in api.maps.objects:
            self.reply(api.maps.objects[name])
        else:
            self.refuse(
                404, "NotFound", f'configmaps "{name}" not found', {"name": name, "kind": "configmaps"}
            )

    def _list(self, maps: Collection) -> None:
        with maps.changed:
            version, at = maps.version, 0
            if token := self.seen.query.get("continue"):
                version, at = (int(part) for part in token.split(":"))
            if version < maps.forgotten:
                return self.refuse(410, "Expired", "The provided continue parameter is too old")
            items = list(maps.objects.values())
            end = at + int(self.seen.query.get("limit") or len(items) or 1)
            metadata = {"resourceVersion": str(version)}
            if end < len(items):
                metadata["continue"] = f"{version}:{end}"
            return self.reply({"metadata": metadata, "items": items[at:end]})

    def _watch(self, maps: Collection) -> None:
        since = int(self.seen.query["resourceVersion"])
        self.begin_chunks()
        if since < maps.forgotten:
            expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            self.chunk(_line({"type": "ERROR", "object": expired}))
            return self.chunk(b"")
        for event in maps.events(since):
            self.chunk(_line(event))
        return self.hang_up()

    def reply(self, document: Any, status: int = 200, **headers: str) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(
        self, status: int, reason: str, message: str, details: Document | None = None, **headers: str
    ) -> None:
        document = {"kind": "Status", "status": "Failure", "message": message, "reason": reason}
        self.reply({**document, "details": details or {}, "code": status}, status, **headers)

    def begin_chunks(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


def _line(event: Document) -> bytes:
    return json.dumps(event).encode() + b"\n"


def _name(line: Any) -> str:
    subject = (line.getpeercert() or {}).get("subject", ())
    return next((value for part in subject for key, value in part if key == "commonName"), "")


def refusing(status: int, reason: str = "", message: str = "no", **headers: str) -> Answer:
    return lambda handler: handler.refuse(status, reason, message, None, **headers)


def replying(document: Any, status: int = 200, **headers: str) -> Answer:
    return lambda handler: handler.reply(document, status, **headers)


def hanging_up(handler: Handler) -> None:
    handler.hang_up()


def doing(*steps: Callable[[Handler], object]) -> Answer:
    """Take these steps one after the other."""

    def answer(handler: Handler) -> None:
        for step in steps:
            step(handler)

    return answer


_made: list[Certificates] = []


def made_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The fixture `certificates` of those who want it, for a whole session."""
    if not _made:
        _made.append(make_certificates(tmp_path_factory.mktemp("certificates")))
    return _made[0]


def served(certificates: Certificates) -> Iterator[FakeApi]:
    """The fixture `server` of those who want it."""
    api = FakeApi(certificates)
    yield api
    api.close()


def connected(server: FakeApi) -> Iterator[Api]:
    """The fixture `api` of those who want it."""
    with Api(server.access()) as api:
        yield api


def shortened(module: ModuleType) -> Callable[[pytest.MonkeyPatch], None]:
    """The fixture `short_pauses` of those who want it: what has failed in a module is tried again at once."""

    def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)

    return short_pauses
