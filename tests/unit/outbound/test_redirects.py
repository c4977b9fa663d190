"""Whatever is asked with a token and answers with a redirect: where that points to never receives the token."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.history_support import a_state
from tests.unit.visitor_support import Listener, listening, tell

from mpijob.backends import model_registry
from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.client import exec_stream, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.logs import http_service, loki_client
from mpijob.backends.kubernetes.logs.http_service import HttpService
from mpijob.backends.kubernetes.logs.loki_client import Span
from mpijob.backends.kubernetes.metrics import prometheus_query
from mpijob.backends.registry.http import RegistryHttp
from mpijob.backends.s3_volumes import Bucket, Connection
from mpijob.client.integrations import mlflow, otlp, webhooks
from mpijob.errors import BackendError, MpiJobError
from mpijob.outbound import http
from mpijob.settings import Settings

pytestmark = pytest.mark.security
TOKEN = "s3cr3t-t0k3n"
Ask = Callable[[str, str], object]
STATUSES = ("301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect")


def _loki(url: str, token_file: str) -> object:
    loki = loki_client.of_settings(Settings(loki=url, loki_token_file=token_file))
    assert loki is not None
    return loki.pods("team", ".*", Span(0, 1))


def _prometheus(url: str, token_file: str) -> object:
    server = prometheus_query.of_settings(Settings(prometheus=url, prometheus_token_file=token_file))
    assert server is not None
    return server.used("team", ["pod"])


def _model_registry(url: str, token_file: str) -> object:
    return model_registry.Registry(url, TOKEN).register(model_registry.RegistryEntry("m", "v", "file:///"))


def _mlflow(url: str, token_file: str) -> object:
    return mlflow.Server(url, token_file).begin(a_state())


def _traces(url: str, token_file: str) -> None:
    otlp.send(url, {"token": TOKEN})


def _callback(url: str, token_file: str) -> object:
    return webhooks.post(url, TOKEN.encode(), {webhooks.SIGNATURE: TOKEN}, allow_private=True)


def _image_registry(url: str, token_file: str) -> object:
    with RegistryHttp().request("GET", f"{url}/v2/", {"Authorization": f"Bearer {TOKEN}"}) as reply:
        return reply.status


def _api_server(url: str, token_file: str) -> object:
    return Api(Access(server=url, token=TOKEN)).get(resources.POD.path("team", "x"))


def _exec(url: str, token_file: str) -> object:
    path, out = "/api/v1/namespaces/a/pods/p/exec", io.BytesIO()
    access = Access(server=url, token=TOKEN)
    return exec_stream.execute(access, path, ("x",), stdin=io.BytesIO(), stdout=out, stderr=out)


def _object_store(url: str, token_file: str) -> object:
    connection = Connection(url, "data", "access", TOKEN, session_token=TOKEN)
    return [*Bucket(connection).names()]


ASKED: list[Ask] = [
    _loki,
    _prometheus,
    _model_registry,
    _mlflow,
    _traces,
    _callback,
    _image_registry,
    _api_server,
    _exec,
    _object_store,
]


@pytest.mark.thorough
@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("ask", ASKED, ids=lambda ask: ask.__name__.strip("_"))
def test_a_redirect_to_another_server_carries_no_token(ask: Ask, status: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with listening(tell(b"{}")) as other:
        target = f"http://localhost:{other.port}/elsewhere?{TOKEN}"
        with listening(tell(b"", status, f"Location: {target}\r\n")) as first:
            with suppress(MpiJobError, OSError):
                ask(first.url, str(tmp_path / "token"))
            assert first.connections > 0
        received = b"".join(other.heads).replace(
            f"?{TOKEN}".encode(), b""
        )  # an address that it has told itself
    assert TOKEN.encode() not in received
    assert b"authorization" not in received.lower()
    if ask is not _image_registry:  # which leads to where its blobs are, without the token
        assert other.connections == 0


def test_a_redirect_is_an_error_that_names_where_it_points_without_its_query(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    headers = "Location: https://user:pw@elsewhere.example.org:8443/path?state=private#part\r\n"
    with listening(tell(b"", "302 Found", headers)) as first:
        with pytest.raises(OSError, match="302") as caught:
            HttpService(first.url, str(tmp_path / "token")).get("/labels", {})
        assert "https://elsewhere.example.org:8443/path not followed" in str(caught.value)
        with pytest.raises(BackendError) as refused:
            model_registry.Registry(first.url, TOKEN).register(
                model_registry.RegistryEntry("m", "v", "file:///")
            )
    for told in (str(caught.value), str(refused.value)):
        assert not any(word in told for word in ("private", "pw", "user", TOKEN))


@pytest.mark.parametrize("ask", ASKED[:6], ids=lambda ask: ask.__name__.strip("_"))
def test_a_body_without_end_is_not_read_to_its_end(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setattr(mlflow, "_MOST_BYTES", 1 << 20)
    for module in (model_registry, http_service):
        monkeypatch.setattr(module, "_MAX_BYTES", 1 << 20)
    sent = [0]

    def endless(server: Listener, line: object) -> None:
        server.head(line)  # type: ignore[arg-type]  # a socket
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")  # type: ignore[attr-defined]  # a socket
        while sent[0] < 300 << 20:
            line.sendall(b"x" * 65536)  # type: ignore[attr-defined]  # a socket
            sent[0] += 65536

    with listening(endless) as server, suppress(MpiJobError, OSError):
        ask(server.url, str(tmp_path / "token"))
    assert sent[0] < 100 << 20


def test_only_http_is_asked() -> None:
    for url in ("file:///etc/passwd", "ftp://example.org/x", "data:,x", "http://"):
        with pytest.raises(ValueError, match="only http"):
            http.request("GET", url, seconds=1, max_bytes=1)
