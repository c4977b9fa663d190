"""The way to an API server: its certificate and ours, its name and its path, and proxies between."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.kube_support import (
    MAPS,
    Certificates,
    FakeApi,
    make_certificates,
    shortened,
)

from mpijob.backends.kubernetes.client import api_errors, http
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.errors import Unsupported

short_pauses = pytest.fixture(autouse=True)(shortened(http))


@pytest.mark.thorough
def test_a_server_that_is_not_there_is_told_with_its_address(server: FakeApi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"https://127.0.0.1:{free.getsockname()[1]}"
    with Api(server.access(server=address)) as api, pytest.raises(ApiError) as caught:
        api.get(MAPS)
    assert caught.value.reason == api_errors.REFUSED
    assert caught.value.message == f"{address} cannot be reached: Connection refused"
    assert "context 'lab'" in caught.value.hint


@pytest.mark.thorough
@pytest.mark.security
def test_a_server_with_another_authority_gets_no_token(server: FakeApi, tmp_path: Any) -> None:
    other = make_certificates(tmp_path).text("ca.crt")
    with Api(server.access(ca=other, token="secret")) as api, pytest.raises(ApiError) as caught:
        api.get(MAPS)
    assert caught.value.reason == api_errors.CERTIFICATE
    assert "presents a certificate that the kubeconfig does not trust" in caught.value.message
    assert server.requests == []


def test_a_server_may_be_trusted_unseen(server: FakeApi) -> None:
    with Api(server.access(ca="", insecure=True)) as api:
        assert api.list(MAPS).items == []


def test_a_name_that_nobody_knows_is_not_asked_for_again(server: FakeApi) -> None:
    with Api(server.access(server="https://no-such-host.invalid")) as api, pytest.raises(ApiError) as caught:
        api.list(MAPS)
    assert caught.value.reason in (api_errors.UNKNOWN_HOST, api_errors.UNREACHABLE)
    assert "no-such-host.invalid: cannot resolve the host name" in caught.value.message


@pytest.mark.parametrize(
    "ca", ["no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_an_authority_that_is_no_certificate_is_told(server: FakeApi, ca: str) -> None:
    with (
        Api(server.access(ca=ca, cluster="lab")) as api,
        pytest.raises(ApiError, match="CA of cluster 'lab'"),
    ):
        api.list(MAPS)


@pytest.mark.security
def test_the_server_must_have_the_name_that_was_dialled(server: FakeApi) -> None:
    with Api(server.access(tls_server_name="other.test")) as api, pytest.raises(ApiError) as caught:
        api.get(MAPS)
    assert caught.value.reason == api_errors.CERTIFICATE
    with Api(server.access(tls_server_name="api.test")) as api:
        assert api.list(MAPS).items == []


def test_a_client_certificate_identifies_the_user(server: FakeApi, certificates: Certificates) -> None:
    access = server.access(certificate=certificates.text("alice.crt"), key=certificates.text("alice.key"))
    with Api(access) as api:
        api.list(MAPS)
    assert server.requests[0].peer == "alice"


def test_a_certificate_without_its_key_is_told(server: FakeApi, certificates: Certificates) -> None:
    access = server.access(
        certificate=certificates.text("alice.crt"), key=certificates.text("ca.key"), user="u"
    )
    with Api(access) as api, pytest.raises(ApiError, match="certificate of user 'u'"):
        api.list(MAPS)


def test_a_server_below_a_path_works(certificates: Certificates) -> None:
    server = FakeApi(certificates, root="/k8s/clusters/c-m-1")
    try:
        server.maps.put("m")
        with Api(server.access()) as api:
            assert api.get(f"{MAPS}/m")["metadata"]["name"] == "m"
        assert server.requests[0].path == f"/k8s/clusters/c-m-1{MAPS}/m"
    finally:
        server.close()


class Relay:
    """Passes bytes on: a port that opens late, and a proxy."""

    def __init__(
        self, port: int, target: int, *, greet: Callable[[socket.socket], None] | None = None
    ) -> None:
        self.door = socket.create_server(("127.0.0.1", port))
        self.port = self.door.getsockname()[1]
        self.target = target
        self.greet = greet
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self.door.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self.door.accept()
            except OSError:
                return
            if self.greet:
                self.greet(caller)
            callee = socket.create_connection(("127.0.0.1", self.target))
            for pair in ((caller, callee), (callee, caller)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_a_proxy_is_asked_for_a_tunnel_and_told_its_password(server: FakeApi) -> None:
    heads: list[bytes] = []

    def greet(line: socket.socket) -> None:
        heads.append(line.recv(4096))
        line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")

    relay = Relay(0, server.port, greet=greet)
    with Api(server.access(proxy=f"http://me:p%40ss@127.0.0.1:{relay.port}")) as api:
        assert api.list(MAPS).items == []
    relay.close()
    assert heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.".encode())
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in heads[0]


def test_a_socks_proxy_is_passed_through(server: FakeApi) -> None:
    asked: list[bytes] = []

    def greet(line: socket.socket) -> None:
        line.recv(16)
        line.sendall(b"\x05\x00")
        asked.append(line.recv(512))
        line.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")

    relay = Relay(0, server.port, greet=greet)
    with Api(server.access(proxy=f"socks5://127.0.0.1:{relay.port}")) as api:
        assert api.list(MAPS).items == []
    relay.close()
    assert asked == [b"\x05\x01\x00\x01\x7f\x00\x00\x01" + server.port.to_bytes(2, "big")]


def test_a_socks_proxy_resolves_the_name_and_is_told_its_password(server: FakeApi) -> None:
    asked: list[bytes] = []

    def greet(line: socket.socket) -> None:
        for answer in (b"\x05\x02", b"\x01\x00", b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"):
            asked.append(line.recv(512))
            line.sendall(answer)

    relay = Relay(0, server.port, greet=greet)
    address = f"https://api.test:{server.port}"
    with Api(server.access(server=address, proxy=f"socks5h://me:p%40ss@127.0.0.1:{relay.port}")) as api:
        assert api.list(MAPS).items == []
    relay.close()
    assert asked[1:] == [
        b"\x01\x02me\x04p@ss",
        b"\x05\x01\x00\x03\x08api.test" + server.port.to_bytes(2, "big"),
    ]


@pytest.mark.security
def test_a_socks_proxy_that_refuses_is_told_without_its_password(server: FakeApi) -> None:
    relay = Relay(0, server.port, greet=lambda line: line.sendall(b"\x05\xff"))
    with (
        Api(server.access(proxy=f"socks5://me:hush@127.0.0.1:{relay.port}")) as api,
        pytest.raises(ApiError) as caught,
    ):
        api.list(MAPS)
    relay.close()
    assert f"through the proxy socks5://127.0.0.1:{relay.port} cannot be reached" in caught.value.message
    assert "hush" not in str(caught.value)


def test_a_socks_proxy_without_its_library_says_what_to_install(
    server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "socks", None)
    proxy = "socks5://me:hush@127.0.0.1:1080"
    with Api(server.access(proxy=proxy)) as api, pytest.raises(Unsupported) as caught:
        api.list(MAPS)
    assert caught.value.message == ("the proxy socks5://127.0.0.1:1080 needs PySocks, which is not installed")
    assert caught.value.hint == "run: pip install 'mpijob[socks]'"


@pytest.mark.parametrize("proxy", ["https://p.test:1", "ftp://p.test"])
def test_a_proxy_of_another_kind_is_refused(server: FakeApi, proxy: str) -> None:
    with Api(server.access(proxy=proxy)) as api, pytest.raises(Unsupported, match="unsupported proxy"):
        api.list(MAPS)


@pytest.mark.security
def test_a_proxy_that_refuses_is_told_without_its_password(server: FakeApi) -> None:
    relay = Relay(0, server.port, greet=lambda line: line.sendall(b"HTTP/1.1 407 Who are you\r\n\r\n"))
    with (
        Api(server.access(proxy=f"http://me:hush@127.0.0.1:{relay.port}")) as api,
        pytest.raises(ApiError) as caught,
    ):
        api.list(MAPS)
    relay.close()
    assert f"through the proxy http://127.0.0.1:{relay.port}" in caught.value.message
    assert "407 Who are you" in caught.value.message
    assert "hush" not in str(caught.value)
