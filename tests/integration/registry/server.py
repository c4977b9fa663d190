"""A real registry server (Debian's `docker-registry`) for one test, with the logins and the TLS that it wants.

`make test` puts the program in `.make/registry`; one that is on the PATH does as well.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
import urllib.response
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.images import OCI, Made, digest
from tests.servers import free_port

ROOT = Path(__file__).resolve().parents[3]
USER, PASSWORD = "jane", "secret"
_HASH = "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"  # of that password
_SERVICE, _ISSUER = "registry", "tests"


def program() -> str:
    own = ROOT / ".make" / "registry" / "usr" / "bin" / "docker-registry"
    found = str(own) if own.exists() else shutil.which("docker-registry")
    if not found:
        pytest.fail("docker-registry is missing: `make test` sets it up", pytrace=False)
    return found


@dataclass
class Server:
    """A registry that runs: where it is, and what must be sent with a push."""

    address: str
    scheme: str
    log: Path
    certificate: Path
    headers: dict[str, str] = field(default_factory=dict)
    context: ssl.SSLContext | None = None

    def push(self, made: Made, name: str, tag: str = "1") -> str:
        """Push an image; return its name."""
        for one, data in made.blobs.items():
            place = self._send("POST", f"/v2/{name}/blobs/uploads/", b"", {}).headers["Location"]
            joined = "&" if "?" in place else "?"
            self._send(
                "PUT", f"{place}{joined}digest={one}", data, {"Content-Type": "application/octet-stream"}
            )
        self.put(name, tag, made.manifest, f"{OCI}.manifest.v1+json")
        return f"{self.address}/{name}:{tag}"

    def put(self, name: str, tag: str, manifest: bytes, kind: str) -> None:
        self._send("PUT", f"/v2/{name}/manifests/{tag}", manifest, {"Content-Type": kind})

    def _send(
        self, method: str, path: str, data: bytes, headers: dict[str, str]
    ) -> urllib.response.addinfourl:
        url = path if "://" in path else f"{self.scheme}://{self.address}{path}"
        request = urllib.request.Request(url, data, {**self.headers, **headers}, method=method)
        answer: urllib.response.addinfourl = urllib.request.urlopen(request, timeout=20, context=self.context)
        return answer


@contextmanager
def running(place: Path, *, tls: bool = False, auth: str = "") -> Iterator[Server]:
    """Run a registry until the end of the block; `auth` is "", "basic" or "bearer"."""
    place.mkdir(parents=True, exist_ok=True)
    port = free_port()
    certificate, key = _certificate(place)
    config: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(place / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"}
        | ({"tls": {"certificate": str(certificate), "key": str(key)}} if tls else {}),
    }
    with _tokens(place, certificate, key, wanted=auth == "bearer") as realm:
        config |= _auth(auth, place, realm, certificate)
        (place / "config.yml").write_text(json.dumps(config))  # JSON is YAML, too
        address, log = f"127.0.0.1:{port}", place / "log"
        with log.open("wb") as out:
            argv = [program(), "serve", str(place / "config.yml")]
            process = subprocess.Popen(argv, stdout=out, stderr=out, env={"PATH": os.environ["PATH"]})
        server = Server(address, "https" if tls else "http", log, certificate)
        server.context = ssl.create_default_context(cafile=str(certificate)) if tls else None
        server.headers = _pusher(auth, realm)
        try:
            _await(port, process, log)
            yield server
        finally:
            process.terminate()
            process.wait(20)


def login_file(place: Path, address: str, user: str = USER, password: str = PASSWORD) -> Path:
    """Write a file of logins as docker does."""
    place.parent.mkdir(parents=True, exist_ok=True)
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    place.write_text(json.dumps({"auths": {address: {"auth": secret}}}))
    return place


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the registry ended: {log.read_text()[-2000:]}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    pytest.fail("the registry does not answer")


def _auth(kind: str, place: Path, realm: str, certificate: Path) -> dict[str, object]:
    if kind == "basic":
        (place / "users").write_text(f"{USER}:{_HASH}\n")
        return {"auth": {"htpasswd": {"realm": "tests", "path": str(place / "users")}}}
    if kind == "bearer":
        token = {"realm": realm, "service": _SERVICE, "issuer": _ISSUER, "rootcertbundle": str(certificate)}
        return {"auth": {"token": token}}
    return {}


def _basic() -> str:
    return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def _pusher(auth: str, realm: str) -> dict[str, str]:
    if auth == "basic":
        return {"Authorization": _basic()}
    if auth != "bearer":
        return {}
    url = f"{realm}?service={_SERVICE}&scope=repository:team/mpi:pull,push"
    request = urllib.request.Request(url, headers={"Authorization": _basic()})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return {"Authorization": f"Bearer {json.load(answer)['token']}"}


def _certificate(place: Path) -> tuple[Path, Path]:
    certificate, key = place / "cert.pem", place / "key.pem"
    made = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tests")
    where = ("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", "req", *made, *where], check=True, capture_output=True)
    return certificate, key


@contextmanager
def _tokens(place: Path, certificate: Path, key: Path, *, wanted: bool) -> Iterator[str]:
    """Run a server that hands out signed tokens: for pulling "open/…" to anybody, else to those who log in."""
    if not wanted:
        yield ""
        return
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            known = self.headers.get("Authorization") == _basic()
            scopes = [one for one in asked.get("scope", []) if known or one.startswith("repository:open/")]
            if "Authorization" in self.headers and not known:
                self.send_error(401)
                return
            body = json.dumps({"token": _token(scopes, key, der, place)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        server.server_close()


def _token(scopes: list[str], key: Path, der: bytes, place: Path) -> str:
    """Return a token as registries want them: signed by the key whose certificate they know."""
    access = []
    for scope in scopes:
        kind, name, actions = scope.split(":")
        access.append({"type": kind, "name": name, "actions": actions.split(",")})
    head = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der).decode()]}
    now = int(time.time())
    claims = {"iss": _ISSUER, "aud": _SERVICE, "sub": USER, "exp": now + 300, "nbf": now - 60, "iat": now}
    text = b".".join(
        _web(json.dumps(one).encode()) for one in (head, claims | {"jti": digest(b""), "access": access})
    )
    argv = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    signature = subprocess.run(argv, input=text, capture_output=True, check=True).stdout
    return (text + b"." + _web(signature)).decode()


def _web(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
