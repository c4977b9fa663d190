"""A webhook whose port every pod can reach: whoever floods it takes neither its memory nor the answers of others."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.unit.incoming_support import a_job, a_review, documents

from mpijob.cluster.webhook import certificates
from mpijob.cluster.webhook.server import Options, Server

pytestmark = [pytest.mark.security, pytest.mark.hostile]
LIMIT_MEGABYTES = 256  # of deploy/base/admission/service.yaml
SOON_SECONDS = 1.0
API_SERVER, MALLORY = "127.0.0.1", "127.0.0.66"
SERVER = """
import sys, threading
from tests.unit.incoming_support import Knowing
from mpijob.cluster.webhook import certificates
from mpijob.cluster.webhook.server import Options, Server

made = Server(Options(host="127.0.0.1", port=0))
made.use_keys(certificates.renew(("127.0.0.1",)))
with made:
    made.cluster = Knowing()
    print(made.port, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def webhook() -> Iterator[tuple[int, int]]:
    """A webhook in a process of its own: its port and its process id."""
    argv = [sys.executable, "-c", SERVER]
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()


def connect(port: int, source: str) -> http.client.HTTPSConnection:
    context = ssl._create_unverified_context()
    return http.client.HTTPSConnection(
        "127.0.0.1", port, context=context, timeout=60, source_address=(source, 0)
    )


def review() -> bytes:
    (document,) = documents(a_job(), "MPIJob")
    return json.dumps(a_review(document)).encode()


def asked(port: int, source: str = API_SERVER) -> float:
    """Return how long an honest question takes."""
    begun = time.monotonic()
    with closing(connect(port, source)) as line:
        line.request("POST", "/judge", review())
        answer = line.getresponse()
        assert (answer.status, json.loads(answer.read())["response"]["allowed"]) == (200, True)
    return time.monotonic() - begun


def peak_megabytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def flood(port: int, body: bytes, stop: threading.Event) -> None:
    while not stop.is_set():
        with suppress(OSError, http.client.HTTPException), closing(connect(port, MALLORY)) as line:
            line.request("POST", "/defaults", body)
            line.getresponse().read()


ELEMENTS = b"{" + b'"request":{"object":[' + b"{}," * 999_999 + b"{}]}}"
DEEP = b'{"request":' + b"[" * 90_000 + b"]" * 90_000 + b"}"
FIELDS = b'{"request":{' + b",".join(b'"%d":1' % one for one in range(90_000)) + b"}}"


@pytest.mark.alone
@pytest.mark.parametrize("body", [ELEMENTS, DEEP, FIELDS], ids=["a-million-elements", "deep", "many-fields"])
def test_a_flood_of_large_bodies_takes_neither_memory_nor_anybodys_answer(
    webhook: tuple[int, int], body: bytes
) -> None:
    port, process = webhook
    asked(port)
    stop = threading.Event()
    threads = [threading.Thread(target=flood, args=(port, body, stop)) for _ in range(4)]
    for one in threads:
        one.start()
    try:
        taken = [asked(port) for _ in range(20)]
    finally:
        stop.set()
        for one in threads:
            one.join()
    assert max(taken) < SOON_SECONDS, taken
    assert peak_megabytes(process) < LIMIT_MEGABYTES


@pytest.mark.thorough
def test_a_body_that_is_too_large_is_refused_before_it_is_read(webhook: tuple[int, int]) -> None:
    with closing(connect(webhook[0], MALLORY)) as line:
        line.putrequest("POST", "/judge")
        line.putheader("Content-Length", str((3 << 20) + 1))
        line.endheaders()
        assert line.getresponse().status == 413


@pytest.mark.alone
@pytest.mark.parametrize("said", ["nothing", "half a handshake", "half a request"])
def test_half_open_connections_take_nobodys_place(webhook: tuple[int, int], said: str) -> None:
    port, process = webhook
    context = ssl._create_unverified_context()
    held: list[socket.socket] = []
    try:
        for _ in range(1500):
            with suppress(OSError):  # one address has only so many
                line = socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(MALLORY, 0))
                held.append(line)
                if said == "half a handshake":
                    line.send(b"\x16\x03\x01\x02\x00\x01")
                elif said == "half a request" and len(held) <= 200:
                    held[-1] = wrapped = context.wrap_socket(line)
                    wrapped.send(b"POST /judge HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        taken = [asked(port) for _ in range(20)]
    finally:
        for one in held:
            one.close()
    assert max(taken) < SOON_SECONDS, taken
    assert peak_megabytes(process) < LIMIT_MEGABYTES


# -- who asks ---------------------------------------------------------------------------------------
def identity(folder: Path, name: str, common_name: str) -> Path:
    """Return the file of a certificate that signs itself, with its key."""
    path, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN={common_name}"
    argv = ["openssl", *words.split(), "-keyout", str(key), "-out", str(path)]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path


def shown(port: int, certificate: Path | None) -> int:
    """Return how a client with a certificate is answered."""
    context = ssl._create_unverified_context()
    if certificate is not None:
        context.load_cert_chain(certificate)
    with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)) as line:
        line.request("POST", "/judge", b"{}")
        return line.getresponse().status


@pytest.mark.thorough
def test_where_the_api_server_shows_a_certificate_nobody_else_is_answered(tmp_path: Path) -> None:
    ours, stranger = identity(tmp_path, "ours", "api-server"), identity(tmp_path, "other", "api-server")
    for name, status in (("api-server", 503), ("", 503), ("somebody-else", 403)):
        made = Server(Options(host="127.0.0.1", port=0, client_ca=str(ours), client_name=name))
        made.use_keys(certificates.renew(("127.0.0.1",)))
        with made:
            assert shown(made.port, ours) == status, "503: it is heard, and nothing is known yet"
            assert shown(made.port, None) == 403
            with pytest.raises((OSError, http.client.HTTPException)):
                shown(made.port, stranger)
