"""A registry's certificate, and answers of a registry that break off or do not end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.kube_support import FakeApi, Handler, replying
from tests.unit.visitor_support import listening, tell

from mpijob.backends.registry.http import NoResponse, RegistryHttp
from mpijob.errors import InvalidImage, Unsupported


@pytest.mark.thorough
def test_a_registry_is_trusted_by_its_authority_only(server: FakeApi, tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text(server.certificates.text("ca.crt"))
    server.says(replying({"repositories": []}))
    with RegistryHttp(ca_file=str(authority)).request("GET", f"{server.url}/v2/", {}) as reply:
        assert (reply.status, reply.read_all(99)) == (200, b'{"repositories": []}')
    with pytest.raises(NoResponse, match="certificate not trusted"):
        RegistryHttp().request("GET", f"{server.url}/v2/", {"Authorization": "Bearer secret"})
    assert len(server.requests) == 1
    authority.write_text("no certificate")
    with pytest.raises(Unsupported, match="cannot load the certificate authority"):
        RegistryHttp(ca_file=str(authority)).request("GET", f"{server.url}/v2/", {})


@pytest.mark.security
def test_a_document_that_is_longer_than_a_short_one_is_refused() -> None:
    with listening(tell(b"x" * 100)) as server:
        reply = RegistryHttp().request("GET", f"{server.url}/v2/", {})
        with pytest.raises(InvalidImage, match="response larger than 99 bytes"):
            reply.read_all(99)


def test_a_layer_that_breaks_off_is_told_as_broken_off(server: FakeApi, tmp_path: Path) -> None:
    def cut(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"half")
        handler.hang_up()

    authority = tmp_path / "ca.crt"
    authority.write_text(server.certificates.text("ca.crt"))
    server.says(cut)
    with RegistryHttp(ca_file=str(authority)).request("GET", f"{server.url}/v2/", {}) as reply:
        assert reply.read(1 << 18) == b"half"
        with pytest.raises(NoResponse, match="connection lost"):
            reply.read(1 << 18)
