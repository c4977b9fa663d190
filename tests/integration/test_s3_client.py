"""How an object store is reached: keys and where they come from, proxies, private authorities, styles of addresses."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kube_support import make_certificates
from tests.unit.visitor_support import Listener, listening, tell

from mpijob.backends.s3_volumes import Bucket, Connection, find_connection, from_variables
from mpijob.errors import BackendError, InvalidJob, NotStored, Unsupported
from mpijob.history.storage.s3 import ObjectStore
from mpijob.outbound import s3
from mpijob.settings import ObjectsSetting

pytestmark = pytest.mark.engine
LISTED = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Let nothing of this machine supply keys or proxies."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "CA_BUNDLE", "ROLE_ARN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    s3._session.cache_clear()
    yield
    s3._session.cache_clear()


def headers_of(server: Listener) -> dict[str, str]:
    lines = server.heads[-1].decode().split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}


def test_a_session_token_goes_with_the_keys() -> None:
    with listening(tell(LISTED)) as server:
        [*Bucket(Connection(server.url, "data", "AKIA1", "k", "eu-central-1", session_token="t0k3n")).names()]
        sent = headers_of(server)
    assert sent["x-amz-security-token"] == "t0k3n"
    assert "Credential=AKIA1/" in sent["authorization"]
    assert "/eu-central-1/s3/aws4_request" in sent["authorization"]


def test_without_keys_those_of_the_environment_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "FROMENV", "SECRET_ACCESS_KEY": "k", "SESSION_TOKEN": "t"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with listening(tell(LISTED)) as server:
        [*Bucket(Connection(server.url, "data")).names()]
        assert "Credential=FROMENV/" in headers_of(server)["authorization"]
        assert headers_of(server)["x-amz-security-token"] == "t"
        [
            *Bucket(Connection(server.url, "data", "OWN", "k")).names()
        ]  # keys of its own come without that token
        assert "Credential=OWN/" in headers_of(server)["authorization"]
        assert "x-amz-security-token" not in headers_of(server)


def test_without_keys_a_web_identity_is_exchanged_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("a.web.token")
    answer = (b"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
              b"<AccessKeyId>FROMSTS</AccessKeyId><SecretAccessKey>k</SecretAccessKey><SessionToken>sts</SessionToken>"
              b"<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
              b"</AssumeRoleWithWebIdentityResponse>")  # fmt: skip
    with listening(tell(answer)) as sts, listening(tell(LISTED)) as server:
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/trainer")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        [*Bucket(Connection(server.url, "data")).names()]
        assert "Credential=FROMSTS/" in headers_of(server)["authorization"]
        assert headers_of(server)["x-amz-security-token"] == "sts"
        assert sts.connections == 1


@pytest.mark.security
def test_a_profile_that_a_job_wrote_into_its_volume_starts_no_program(tmp_path: Path) -> None:
    """As in the pods that move files: the home is the volume, and the keys are found elsewhere."""
    home, mark = tmp_path / "volume", tmp_path / "mark"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws" / "config").write_text(f"[default]\ncredential_process = touch {mark}\n")
    with listening(tell(LISTED)) as server:
        variables = {"HOME": str(home), "AWS_S3_ENDPOINT": server.url, "AWS_S3_BUCKET": "data",
                     "AWS_EC2_METADATA_DISABLED": "true", "PATH": os.environ["PATH"]}  # fmt: skip
        argv = [sys.executable, "-m", "mpijob", "data", "fetch", "env/x", str(tmp_path / "target")]
        subprocess.run(argv, env=variables, timeout=60, check=False, capture_output=True)
        assert mark.exists()  # it would
        mark.unlink()
        closed = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        ended = subprocess.run(argv, env=variables | closed, timeout=60, check=False, capture_output=True)
        assert (ended.returncode != 0, mark.exists(), server.connections) == (True, False, 0)


def test_where_no_keys_are_found_that_is_told_and_nothing_is_sent() -> None:
    with listening(tell(LISTED)) as server:
        with pytest.raises(BackendError, match="no access keys"):
            [*Bucket(Connection(server.url, "data")).names()]
        assert server.connections == 0


def test_one_key_without_the_other_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    with pytest.raises(BackendError, match="only one of"):
        ObjectStore(ObjectsSetting("http://x", "b", access_key="a")).get("x")
    with pytest.raises(InvalidJob, match="only one of"):
        find_connection(
            "lake", {"lake": ObjectsSetting("http://x", "b", secret_key_file=str(tmp_path / "key"))}, {}
        )
    place = {"AWS_S3_ENDPOINT": "http://x", "AWS_S3_BUCKET": "b"}
    with pytest.raises(InvalidJob, match="lacks AWS_ACCESS_KEY_ID"):
        from_variables(place | {"AWS_SECRET_ACCESS_KEY": "k"})
    with pytest.raises(InvalidJob, match="AWS_S3_ADDRESSING_STYLE"):
        from_variables(place | {"AWS_S3_ADDRESSING_STYLE": "upside-down"})
    assert from_variables(place | {"AWS_S3_ADDRESSING_STYLE": "virtual"}).addressing_style == "virtual"
    assert from_variables(place).access_key == ""


def test_a_key_in_a_file_that_is_renewed_is_used_from_then_on(tmp_path: Path) -> None:
    key, token = tmp_path / "key", tmp_path / "token"
    key.write_text("first")
    token.write_text("token-1\n")
    with listening(tell(b"")) as server:
        setting = ObjectsSetting(
            server.url, "data", access_key="a", secret_key_file=str(key), session_token_file=str(token)
        )
        store = ObjectStore(setting)
        store.get("x")
        assert headers_of(server)["x-amz-security-token"] == "token-1"
        token.write_text("token-2\n")
        store.get("x")
        assert headers_of(server)["x-amz-security-token"] == "token-2"


@pytest.mark.parametrize(
    ("style", "host", "path"),
    [("auto", "s3.test", "/data?"), ("path", "s3.test", "/data?"), ("virtual", "data.s3.test", "/?")],
)
def test_the_bucket_stands_in_the_path_or_in_the_name(
    monkeypatch: pytest.MonkeyPatch, style: Any, host: str, path: str
) -> None:
    with listening(tell(LISTED)) as server:
        place = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: place)
        connection = Connection(f"http://s3.test:{server.port}", "data", "a", "k", addressing_style=style)
        [*Bucket(connection).names()]
        assert headers_of(server)["host"] == f"{host}:{server.port}"
        assert server.heads[-1].startswith(f"GET {path}".encode())


def test_a_proxy_of_the_environment_is_used_unless_the_host_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listening(tell(LISTED)) as proxy, listening(tell(LISTED)) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        [*Bucket(Connection("http://s3.example.org", "data", "a", "k")).names()]
        assert proxy.heads[-1].startswith(b"GET http://s3.example.org/data?")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        [*Bucket(Connection(server.url, "data", "a", "k")).names()]
        assert (proxy.connections, server.connections) == (1, 1)


@pytest.mark.security
def test_a_private_authority_is_trusted_where_it_is_named_and_names_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")

    def talk(server: Listener, line: socket.socket) -> None:
        with context.wrap_socket(line, server_side=True) as secure:
            tell(LISTED)(server, secure)

    ca = str(tmp_path / "ca.crt")
    with listening(talk) as server:
        url = server.url.replace("http:", "https:")
        plain = Connection(url, "data", "a", "k")
        with pytest.raises(BackendError, match="SSLError"):
            [*Bucket(plain).names()]
        assert not any(server.heads)
        [*Bucket(Connection(url, "data", "a", "k", ca_file=ca)).names()]
        s3._session.cache_clear()
        monkeypatch.setenv("AWS_CA_BUNDLE", ca)
        [*Bucket(plain).names()]
        assert len([*filter(None, server.heads)]) == 2
        place = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: place)
        with pytest.raises(BackendError, match="SSLError"):
            [*Bucket(Connection(f"https://other.test:{server.port}", "data", "a", "k")).names()]
        assert len([*filter(None, server.heads)]) == 2


def test_a_store_that_is_busy_is_asked_again() -> None:
    busy = tell(b"<Error><Code>SlowDown</Code></Error>", "503 Slow Down")

    def talk(server: Listener, line: socket.socket) -> None:
        (busy if server.connections < 3 else tell(LISTED))(server, line)

    with listening(talk) as server:
        assert [*Bucket(Connection(server.url, "data", "a", "k")).names()] == []
        assert server.connections == 3


def test_what_a_store_says_is_told_in_our_words_only() -> None:
    for code, words in (("SignatureDoesNotMatch", "secret key"), ("Odd", "returned 403 for GET")):
        body = f"<Error><Code>{code}</Code><Message>private</Message></Error>".encode()
        with listening(tell(body, "403 Forbidden")) as server, pytest.raises(BackendError) as caught:
            Bucket(Connection(server.url, "data", "a", "k")).get("x")
        assert words in caught.value.message
        assert "private" not in str(caught.value)


def test_without_boto3_what_to_install_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec
    monkeypatch.setattr(s3, "find_spec", lambda name: None if name == "boto3" else found(name))
    with pytest.raises(Unsupported, match="boto3") as caught:
        ObjectStore(ObjectsSetting("http://x", "b"))
    assert "pip install 'mpijob[s3]'" in caught.value.hint


def test_boto3_is_loaded_only_when_a_store_is_asked() -> None:
    script = (
        "import sys, mpijob.cli.main, mpijob.client, mpijob.history.storage.s3, mpijob.backends.s3_volumes\n"
        "from mpijob.settings import ObjectsSetting\n"
        "mpijob.history.storage.s3.ObjectStore(ObjectsSetting('http://x', 'b'))\n"
        "print(*{'boto3', 'botocore', 'urllib3'} & {*sys.modules})\n"
    )
    loaded = subprocess.run([sys.executable, "-c", script], check=True, timeout=60, capture_output=True)
    assert loaded.stdout.split() == []


def test_a_file_that_changes_while_it_is_stored_is_not_counted(tmp_path: Path) -> None:
    from mpijob.backends import s3_volumes

    (tmp_path / "file").write_bytes(b"x" * 100)
    with (tmp_path / "file").open("rb") as opened, pytest.raises(NotStored):
        s3_volumes._read(opened.fileno(), 200)
