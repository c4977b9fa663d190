"""Images read from a real registry: logins, TLS, digests, platforms; and what a registry may try with its readers."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests import images
from tests.images import OCI, SYSTEM, image, mpich, openmpi
from tests.integration.registry import server
from tests.integration.registry.server import Server, login_file
from tests.servers import free_port
from tests.unit.cli_support import Cli

from mpijob import inspect_image
from mpijob.backends.registry import credentials
from mpijob.client.admin.images import image_exists
from mpijob.errors import BackendError, InvalidImage, NotAllowed, NotFound


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server.running(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture(autouse=True)
def _nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the user one without logins."""
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_an_image_is_read_from_a_registry_and_says_what_its_archive_says(
    plain: Server, tmp_path: Path
) -> None:
    made = images.good()
    there = inspect_image(plain.push(made, "team/mpi"))
    here = inspect_image(str(made.archive(tmp_path / "image.tar")))
    assert there.findings == here.findings
    assert there.image.mpis == here.image.mpis
    assert there.image.origin.digest == images.digest(made.manifest) == here.image.origin.digest


@pytest.mark.req("FR-INT-004")
def test_an_image_is_found_by_its_digest_and_by_its_platform(plain: Server) -> None:
    one, other = images.good(), image({**SYSTEM, **mpich()})
    plain.push(one, "team/two", "one")
    plain.push(other, "team/two", "other")
    index = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [one.descriptor("linux/amd64"), other.descriptor("linux/arm64")],
    }
    plain.put("team/two", "both", json.dumps(index).encode(), f"{OCI}.index.v1+json")
    name = f"{plain.address}/team/two"
    assert str(inspect_image(f"{name}:both", platform="linux/amd64").image.mpi) == "Open MPI 4.1.4"
    assert str(inspect_image(f"{name}:both", platform="linux/arm64").image.mpi) == "MPICH 4.2.1"
    assert str(inspect_image(f"{name}@{images.digest(other.manifest)}").image.mpi) == "MPICH 4.2.1"
    with pytest.raises(NotFound, match="for linux/amd64, linux/arm64"):
        inspect_image(f"{name}:both", platform="linux/s390x")


@pytest.mark.req("UC4")
def test_an_image_that_is_not_there_is_said_to_be_missing(plain: Server) -> None:
    plain.push(images.good(), "team/mpi")
    for name in ("team/mpi:none", "team/other:1"):
        with pytest.raises(NotFound, match="has no image"):
            inspect_image(f"{plain.address}/{name}")
    assert image_exists(f"{plain.address}/team/mpi:1").endswith("team/mpi:1")
    with pytest.raises(NotFound, match="has no image team/mpi:none"):
        image_exists(f"{plain.address}/team/mpi:none")
    assert "exists" in Cli().ok("image", "exists", f"{plain.address}/team/mpi:1")


@pytest.mark.req("FR-INT-004")
@pytest.mark.parametrize("auth", ["basic", "bearer"])
def test_a_registry_that_wants_a_login_gets_the_users_own(auth: str, tmp_path: Path) -> None:
    with server.running(tmp_path / "registry", auth=auth) as there:
        name = there.push(images.good(), "team/mpi")
        with pytest.raises(NotAllowed, match="login required"):
            inspect_image(name)
        wrong = login_file(tmp_path / "wrong.json", there.address, password="guessed")
        with pytest.raises(NotAllowed, match="denied with this login"):
            inspect_image(name, auth_file=str(wrong))
        assert inspect_image(name, auth_file=str(login_file(tmp_path / "right.json", there.address))).ok
        login_file(tmp_path / "home" / ".docker" / "config.json", there.address)
        assert inspect_image(name).ok


@pytest.mark.req("FR-INT-004")
def test_a_registry_with_tls_is_trusted_by_its_authority_only(tmp_path: Path) -> None:
    with server.running(tmp_path / "registry", tls=True) as there:
        name = there.push(images.good(), "team/mpi")
        with pytest.raises(BackendError, match="certificate not trusted"):
            inspect_image(name)
        assert inspect_image(name, ca_file=str(there.certificate)).ok


def test_a_registry_that_is_not_there_is_said_to_be_out_of_reach() -> None:
    with pytest.raises(BackendError, match="connection failed"):
        inspect_image(f"127.0.0.1:{free_port()}/team/mpi:1")
    with pytest.raises(BackendError, match="cannot resolve the host name"):
        inspect_image("registry.invalid/team/mpi:1")


# -- logins ------------------------------------------------------------------------------------------------
@pytest.mark.req("FR-INT-004")
def test_logins_are_found_as_docker_and_podman_keep_them(tmp_path: Path) -> None:
    config = {
        "auths": {
            "registry.example.com": {"auth": "amFuZTpzZWNyZXQ="},
            "registry.example.com/team": {"username": "team", "password": "other"},
            "https://index.docker.io/v1/": {"auth": "aHViOmh1Yg=="},
            "token.example.com": {"identitytoken": "t"},
            "broken.example.com": {"auth": "%%%"},
        }
    }

    def found(host: str, path: str = "x") -> str:
        login = credentials.login_from_config(config, host, path)
        return f"{login.user}{login.token}" if login else ""

    assert found("registry.example.com") == "jane"
    assert found("registry.example.com", "team/mpi") == "team"
    assert found("docker.io") == "hub"
    assert found("token.example.com") == "t"
    assert [found("broken.example.com"), found("other.example.com")] == ["", ""]
    assert "secret" not in repr(credentials.login_from_config(config, "registry.example.com"))


def test_a_credential_helper_is_asked_as_docker_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-mine"
    helper.write_text('#!/bin/sh\nread host\n[ "$host" = registry.example.com ] || exit 1\n'
                      'echo \'{"Username": "jane", "Secret": "secret"}\'\n')  # fmt: skip
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config = {"credHelpers": {"registry.example.com": "mine", "other.example.com": "mine"}}
    login = credentials.login_from_config(config, "registry.example.com")
    assert login == credentials.Login("jane", "secret")
    assert credentials.login_from_config(config, "other.example.com") is None
    assert credentials.login_from_config({"credsStore": "../../bin/sh"}, "registry.example.com") is None
    assert credentials.login_from_config(config, "registry.example.com", helpers=False) is None


# -- a registry that means harm ----------------------------------------------------------------------------
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def hostile(answer: Answer) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Run a server that answers as it likes; yield its address, and the headers that it has been sent."""
    heard: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(dict(self.headers))
            answer(self)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"127.0.0.1:{found.server_port}", heard
    finally:
        found.shutdown()
        found.server_close()


def replied(status: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(line: BaseHTTPRequestHandler) -> None:
        line.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            line.send_header(name.replace("_", "-"), value)
        line.end_headers()
        line.wfile.write(body)

    return answer


@pytest.mark.security
def test_a_login_is_not_told_to_a_host_that_the_registry_leads_to(tmp_path: Path) -> None:
    made = images.good()
    with hostile(replied(404)) as (elsewhere, heard):

        def lead(line: BaseHTTPRequestHandler) -> None:
            if "Authorization" not in line.headers:
                replied(401, WWW_Authenticate='Basic realm="x"')(line)
            elif "/manifests/" in line.path:
                replied(200, made.manifest, Content_Type=f"{OCI}.manifest.v1+json")(line)
            else:
                replied(307, Location=f"http://{elsewhere}/blob")(line)

        with hostile(lead) as (address, asked):
            logins = login_file(tmp_path / "logins.json", address)
            with pytest.raises(NotFound):
                inspect_image(f"{address}/team/mpi:1", auth_file=str(logins))
        assert any("Authorization" in one for one in asked)
        assert heard
        assert all("Authorization" not in one for one in heard)


@pytest.mark.security
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (replied(200, b"x" * (5 << 20)), "larger than 4194304 bytes"),
        (replied(200, b"[1, 2]"), "not a JSON object"),
        (replied(200, b"[" * 100_000), "not JSON"),
        (replied(302, Location="file:///etc/passwd"), "unsafe URL refused"),
        (replied(302, Location="/v2/again"), "more than 5 redirects"),
        (replied(401, WWW_Authenticate='Bearer realm="file:///etc/passwd"'), "no valid realm"),
        (
            replied(200, json.dumps({"manifests": [{"digest": "sha256:../x", "size": 1}]}).encode()),
            "not a valid digest",
        ),
    ],
)
def test_what_a_registry_may_try_is_refused(answer: Answer, said: str) -> None:
    with hostile(answer) as (address, _), pytest.raises(InvalidImage, match=said):
        inspect_image(f"{address}/team/mpi:1")


@pytest.mark.security
def test_a_layer_that_was_exchanged_on_its_way_is_refused() -> None:
    made, other = images.good(), image({**SYSTEM, **openmpi("9.9.9")})
    wrong = next(data for name, data in other.blobs.items() if data[:2] == b"\x1f\x8b")

    def answer(line: BaseHTTPRequestHandler) -> None:
        name = line.path.rpartition("/")[2]
        if "/manifests/" in line.path:
            replied(200, made.manifest, Content_Type=f"{OCI}.manifest.v1+json")(line)
        else:
            data = made.blobs[name]
            replied(200, wrong[: len(data)] if data[:2] == b"\x1f\x8b" else data)(line)

    with hostile(answer) as (address, _), pytest.raises(InvalidImage):
        inspect_image(f"{address}/team/mpi:1")


def test_a_token_that_expires_while_layers_are_read_is_renewed() -> None:
    made, issued = images.good(), list[int]()

    def answer(line: BaseHTTPRequestHandler) -> None:
        realm = f"http://{line.headers['Host']}/token"
        if line.path.startswith("/token"):
            issued.append(len(issued) + 1)
            replied(200, json.dumps({"token": f"t{issued[-1]}"}).encode())(line)
        elif line.headers.get("Authorization") != f"Bearer t{2 if '/blobs/' in line.path else 1}":
            replied(401, WWW_Authenticate=f'Bearer realm="{realm}",service="s"')(line)
        elif "/manifests/" in line.path:
            replied(200, made.manifest, Content_Type=f"{OCI}.manifest.v1+json")(line)
        else:
            replied(200, made.blobs[line.path.rpartition("/")[2]])(line)

    with hostile(answer) as (address, _):
        assert inspect_image(f"{address}/team/mpi:1").ok
    assert issued == [1, 2]
