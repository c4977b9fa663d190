"""Where the page's server goes for a visitor who writes an endpoint into a data connection: not to the inside."""

from __future__ import annotations

import socket
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.visitor_support import (
    REF,
    Listener,
    closed_port,
    cluster,
    listening,
    seen_by,
    tell,
)

from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.errors import BackendError, InvalidJob, MpiJobError
from mpijob.outbound.policy import Policy, TooLarge, server_policy
from mpijob.settings import OutboundSetting

pytestmark = pytest.mark.security
PUBLIC = "93.184.216.34"


def failure(backend: KubernetesBackend, tmp_path: Path | None = None) -> MpiJobError:
    """Return what a visitor is told who asks for the list of a job's files, or for one of them."""

    def ask() -> None:
        if tmp_path is None:
            backend.artifacts(REF)
        else:
            backend.fetch(REF, "out/model", tmp_path / "model")

    with pytest.raises(MpiJobError) as caught:
        ask()
    return caught.value


def allowing(*entries: str, **more: Any) -> Policy:
    return server_policy(OutboundSetting(allow=entries, **more), [])


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Let names resolve to one address after the other, the last for ever; return who was asked for."""
    asked: list[str] = []
    left = list(answers)

    def found(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        address = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return asked


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return where connections are tried to, without making any."""
    tried: list[tuple[str, int]] = []

    class Recorded(socket.socket):
        def connect(self, address: Any) -> None:
            tried.append(address[:2])
            raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr(socket, "socket", Recorded)
    return tried


@pytest.mark.thorough
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "2130706433", "127.1", "0x7f000001"])
@pytest.mark.parametrize("one_file", [False, True])
def test_a_service_of_the_servers_own_machine_is_not_reached(
    host: str, one_file: bool, tmp_path: Path
) -> None:
    with listening() as service:
        error = failure(seen_by(cluster(f"http://{host}:{service.port}")), tmp_path if one_file else None)
        assert service.connections == 0
    assert error.code == "NOT_ALLOWED"
    assert "TOP-SECRET" not in str(error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "168.63.129.16", "100.100.100.200",
     "[fd00:ec2::254]", "[::ffff:10.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::1]", "[fe80::1]", "224.0.0.1"],
)  # fmt: skip
def test_the_inside_and_metadata_services_are_not_reached(
    host: str, connections: list[tuple[str, int]]
) -> None:
    assert failure(seen_by(cluster(f"http://{host}"))).code == "NOT_ALLOWED"
    assert connections == []


def test_a_name_that_changes_its_address_leads_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch, connections: list[tuple[str, int]]
) -> None:
    asked = resolving(monkeypatch, PUBLIC, "127.0.0.1")
    error = failure(seen_by(cluster("http://rebinding.example.org:9000")))
    assert connections == [(PUBLIC, 9000)]
    assert error.code == "NOT_ALLOWED"  # of the next attempt, which is checked anew
    assert len(asked) == 2


def test_a_name_of_which_one_address_is_inside_is_refused(
    monkeypatch: pytest.MonkeyPatch, connections: list[tuple[str, int]]
) -> None:
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 80)) for one in (PUBLIC, "10.0.0.7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    assert failure(seen_by(cluster("http://two-faced.example.org"))).code == "NOT_ALLOWED"
    assert connections == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
)
def test_a_redirect_to_the_inside_is_not_followed(status: str, tmp_path: Path) -> None:
    with listening() as service:
        headers = f"Location: {service.url}/latest/meta-data\r\n"
        with listening(tell(b"", status, headers)) as first:
            policy = allowing(f"127.0.0.1:{first.port}")
            for place in (None, tmp_path):
                error = failure(seen_by(cluster(first.url), policy), place)
                assert status[:3] in error.message
                assert "meta-data" not in str(error)
        assert first.connections > 0
        assert service.connections == 0


def test_open_and_closed_ports_and_unknown_names_get_the_same_answer() -> None:
    with listening() as service:
        hosts = [f"127.0.0.1:{service.port}", f"127.0.0.1:{closed_port()}", "nobody.invalid:80"]
        told = []
        for host in hosts:
            error = failure(seen_by(cluster(f"http://{host}")))
            name = host.partition(":")[0]
            told.append((type(error), error.code, error.message.replace(name, "HOST"), error.hint))
        assert service.connections == 0
    assert len(set(told)) == 1


@pytest.mark.thorough
def test_the_api_server_and_our_own_services_are_not_reached_though_they_are_public(
    monkeypatch: pytest.MonkeyPatch, connections: list[tuple[str, int]]
) -> None:
    known = {"api.example.org": PUBLIC, "loki.example.org": "93.184.216.35", "mine.example.org": PUBLIC,
             "yours.example.org": "93.184.216.35", "s3.example.org": "93.184.216.36"}  # fmt: skip
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, port, *_, **__: [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (known.get(host, host), port))
        ],
    )
    own = ["api.example.org", "https://loki.example.org"]
    policy = server_policy(OutboundSetting(), own)
    for host in (
        "api.example.org:6443",
        "mine.example.org:10250",
        "loki.example.org:443",
        "yours.example.org:443",
    ):
        assert failure(seen_by(cluster(f"http://{host}"), policy)).code == "NOT_ALLOWED", host
    assert connections == []
    for host in ("s3.example.org:443", "yours.example.org:9000"):  # another port of a shared address
        assert failure(seen_by(cluster(f"http://{host}"), policy)).code == "BACKEND_ERROR", host
    named = server_policy(OutboundSetting(allow=("yours.example.org",)), own)
    assert failure(seen_by(cluster("http://yours.example.org:443"), named)).code == "BACKEND_ERROR"


def test_the_servers_own_credentials_sign_nothing_for_a_visitor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-servers")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own")
    with listening() as service:
        error = failure(seen_by(cluster(service.url, keys={}), allowing("127.0.0.1")))
        assert isinstance(error, InvalidJob)
        assert service.connections == 0


@pytest.mark.thorough
def test_errors_tell_host_and_status_and_nothing_of_the_body(tmp_path: Path) -> None:
    body = b"<Error><Code>TOP-SECRET</Code><Message>TOP-SECRET</Message></Error>"
    for status in ("403 Forbidden", "404 Not Found", "418 Teapot", "200 OK"):
        for content in (body, b"TOP-SECRET", b'{"token": "TOP-SECRET"}'):
            with listening(tell(content, status)) as service:
                error = failure(seen_by(cluster(service.url), allowing("127.0.0.1")))
            assert "TOP-SECRET" not in str(error)
            assert f"127.0.0.1:{service.port}" in error.message
            assert status == "200 OK" or status[:3] in error.message


# -- bounds ------------------------------------------------------------------------------------------
ENDLESS = 300 << 20


def endless(head: bytes, sent: list[int]) -> Callable[[Listener, socket.socket], None]:
    """Return how to answer with bytes that do not end, or end after far too many."""

    def talk(server: Listener, line: socket.socket) -> None:
        server.head(line)
        line.sendall(head)
        piece = b"<a>b</a>" * 8192
        while sent[0] < ENDLESS:
            line.sendall(piece)
            sent[0] += len(piece)

    return talk


@pytest.mark.thorough
@pytest.mark.parametrize("status", ["200 OK", "500 Broken"])
@pytest.mark.parametrize("length", ["", f"Content-Length: {ENDLESS}\r\n"])
def test_a_body_without_end_is_not_taken_into_memory(status: str, length: str, tmp_path: Path) -> None:
    for place in (None, tmp_path):
        sent = [0]
        head = f"HTTP/1.1 {status}\r\n{length}\r\n".encode()
        with listening(endless(head, sent)) as service:
            backend = seen_by(cluster(service.url), allowing("127.0.0.1", download_bytes="3Mi"))
            drive_once(backend)
            tracemalloc.start()
            try:
                error = failure(backend, place)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        assert isinstance(error, TooLarge)
        assert peak < 32 << 20
        assert sent[0] < ENDLESS
    written = [one.stat().st_size for one in tmp_path.iterdir()]
    assert sum(written) <= 3 << 20


def drive_once(backend: KubernetesBackend) -> None:
    """Load what a first use loads, so that it is not counted."""
    from mpijob.outbound import s3

    s3._session()
    failure(seen_by(cluster("http://127.0.0.1:1"), allowing("127.0.0.1")))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "document",
    [
        b'<!DOCTYPE x [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;">]><ListBucketResult>&b;</ListBucketResult>',
        b"<ListBucketResult>" + b"<a/>" * 200_000 + b"</ListBucketResult>",
        b"<a>" * 60_000,
    ],
    ids=["entities", "elements", "depth"],
)
def test_documents_that_would_swell_are_refused(document: bytes) -> None:
    for status in ("200 OK", "403 Forbidden"):
        with listening(tell(document, status)) as service:
            assert failure(seen_by(cluster(service.url), allowing("127.0.0.1"))).code == "BACKEND_ERROR"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "document",
    [
        b"<ListBucketResult><Contents></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>results/a</Key><Size>many</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><LastModified>then</LastModified></Contents></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        b"\xff\xfe<",
        b"",
    ],
)
def test_documents_that_are_none_of_s3_are_errors_of_ours_or_empty_lists(document: bytes) -> None:
    codes = []
    with listening(tell(document)) as service:
        try:
            seen_by(cluster(service.url), allowing("127.0.0.1")).artifacts(REF)
        except MpiJobError as error:
            codes.append(error.code)
        assert service.connections > 0
    assert codes in ([], ["BACKEND_ERROR"])


@pytest.mark.parametrize("changed", [{"AWS_DEFAULT_REGION": "no region\n"}, {"AWS_S3_BUCKET": "no bucket/"}])
def test_words_that_boto3_does_not_take_are_errors_of_ours(changed: dict[str, str]) -> None:
    with listening() as service:
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", **changed}
        error = failure(seen_by(cluster(service.url, keys=keys), allowing("127.0.0.1")))
        assert error.code in ("INVALID_JOB", "BACKEND_ERROR")
        assert service.connections == 0


def test_a_list_has_a_most_of_entries() -> None:
    entries = b"".join(b"<Contents><Key>results/%d</Key><Size>1</Size></Contents>" % one for one in range(50))
    listed = b"<ListBucketResult>" + entries + b"<IsTruncated>false</IsTruncated></ListBucketResult>"
    with listening(tell(listed)) as service:
        backend = seen_by(cluster(service.url), allowing("127.0.0.1", listed_objects=50))
        assert len(backend.artifacts(REF)) == 50
        backend = seen_by(cluster(service.url), allowing("127.0.0.1", listed_objects=49))
        assert isinstance(failure(backend), TooLarge)


STAGES = {
    "nothing": b"",
    "head": b"HTTP/1.1 200 OK\r\nX-A: ",
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    "open end": b"HTTP/1.1 200 OK\r\n\r\n",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.thorough
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_answer_that_dribbles_on_ends_in_time(stage: str, scheme: str, tmp_path: Path) -> None:
    ended = time.monotonic() + 60

    def dribble(server: Listener, line: socket.socket) -> None:
        server.head(line) if scheme == "http" else None
        line.sendall(STAGES[stage])
        while time.monotonic() < ended:
            line.sendall(b"\x16" if scheme == "https" else b"1")
            time.sleep(0.05)  # the peer's pace, not a wait of the test

    for place in (None, tmp_path):
        with listening(dribble) as service:
            policy = allowing("127.0.0.1", seconds=0.7, download_seconds=0.7)
            backend = seen_by(cluster(f"{scheme}://127.0.0.1:{service.port}"), policy)
            begun = time.monotonic()
            assert isinstance(failure(backend, place), BackendError)
            assert time.monotonic() - begun < 20
