"""What is fetched without a login: redirects are followed within TLS only, and not for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.kube_support import FakeApi, refusing, replying

from mpijob.cluster import manifests
from mpijob.errors import NotFound
from mpijob.outbound import http


@pytest.fixture(autouse=True)
def trusted(server: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.crt").write_text(server.certificates.text("ca.crt"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))


def test_a_redirect_is_followed_with_its_query(server: FakeApi) -> None:
    server.says(replying(b"", 302, Location="/there?signature=1"), replying(b"found"))
    assert http.download(f"{server.url}/here", seconds=5, max_bytes=9).body == b"found"
    assert [(seen.path, seen.query) for seen in server.requests] == [
        ("/here", {}),
        ("/there", {"signature": "1"}),
    ]


@pytest.mark.security
def test_a_redirect_out_of_tls_is_not_followed(server: FakeApi) -> None:
    server.says(replying(b"", 302, Location=f"http://127.0.0.1:{server.port}/there?secret"))
    with pytest.raises(NotFound, match=r"redirect to http://127.0.0.1:.*/there refused: not HTTPS"):
        manifests._download(f"{server.url}/engine.yaml")
    assert len(server.requests) == 1


@pytest.mark.thorough
@pytest.mark.security
def test_redirects_without_end_are_left(server: FakeApi) -> None:
    server.says(*[replying(b"", 301, Location="/again")] * 20)
    with pytest.raises(OSError, match="more than 5 redirects"):
        http.download(f"{server.url}/here", seconds=5, max_bytes=9)
    assert len(server.requests) == 6


def test_what_is_not_there_or_too_large_is_told_with_its_address(
    server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "_MAX_BYTES", 200)
    server.says(refusing(404), replying(b"x" * 201), replying(b"x" * 200))
    with pytest.raises(NotFound, match=r"cannot read .*engine.yaml: the server answered 404"):
        manifests._download(f"{server.url}/engine.yaml")
    with pytest.raises(NotFound, match=r"cannot read .*engine.yaml: response larger than 200 bytes"):
        manifests._download(f"{server.url}/engine.yaml")
    assert len(manifests._download(f"{server.url}/engine.yaml")) == 200


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize("to", ["https://[", "https://127.0.0.1:99999999/", "file:///etc/passwd", "//[/x"])
def test_a_redirect_to_what_is_no_address_is_an_error(server: FakeApi, to: str) -> None:
    server.says(*[replying(b"", 302, Location=to)] * 2)
    with pytest.raises(NotFound, match=r"cannot read .*engine.yaml"):
        manifests._download(f"{server.url}/engine.yaml")
    assert http.request("GET", f"{server.url}/x", seconds=5, max_bytes=9).location
    assert len(server.requests) == 2
