"""Proving who we are, and again when that has expired: tokens, token files, plugins, a fresh login."""

from __future__ import annotations

import json
import sys
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.kube_support import MAPS, FakeApi

from mpijob.backends.kubernetes.auth import credentials as credentials_module
from mpijob.backends.kubernetes.auth import kubeconfig
from mpijob.backends.kubernetes.auth.access import Plugin
from mpijob.backends.kubernetes.auth.credentials import Credentials
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.errors import BackendError, MpiJobError, Unsupported

HUSH = "hush-hush"
V1 = "client.authentication.k8s.io/v1"

# Hands out the tokens of a file, one for each time that it is run, and notes what it was told.
GIVER = """\
import json, os, pathlib, sys
place = pathlib.Path(sys.argv[1])
count = int((place / "runs").read_text() or 0) if (place / "runs").exists() else 0
(place / "runs").write_text(str(count + 1))
(place / "told").write_text(os.environ["KUBERNETES_EXEC_INFO"])
(place / "env").write_text(os.environ.get("GREETING", ""))
print((place / f"answer-{count}").read_text())
"""


class Giver:
    """A credential plugin, as a script."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "giver.py").write_text(GIVER)

    def gives(self, *answers: dict[str, Any] | str, api: str = V1) -> None:
        for number, answer in enumerate(answers):
            whole = {"apiVersion": api, "kind": "ExecCredential", "status": answer}
            text = answer if isinstance(answer, str) else json.dumps(whole)
            (self.place / f"answer-{number}").write_text(text)

    def plugin(self, **fields: Any) -> Plugin:
        args = (str(self.place / "giver.py"), str(self.place))
        given = {"api": V1, "command": sys.executable, "args": args, "interactive": "Never", **fields}
        return Plugin(**given)

    @property
    def runs(self) -> int:
        return int((self.place / "runs").read_text())

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place / "told").read_text())
        return found


@pytest.fixture
def giver(tmp_path: Path) -> Giver:
    return Giver(tmp_path)


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_token_is_shown_to_the_server(server: FakeApi) -> None:
    server.tokens = {"abc"}
    with Api(server.access(token="abc")) as api:
        assert api.list(MAPS).items == []


def test_user_and_password_are_shown_to_the_server(server: FakeApi) -> None:
    with Api(server.access(username="me", password="pass")) as api:
        api.list(MAPS)
    assert server.requests[0].headers["authorization"] == "Basic bWU6cGFzcw=="


def test_a_token_that_was_refused_is_not_tried_for_ever(server: FakeApi) -> None:
    server.tokens = {"other"}
    with Api(server.access(token="abc")) as api, pytest.raises(ApiError) as caught:
        api.list(MAPS)
    assert caught.value.status == 401
    assert len(server.requests) == 1


def test_a_token_file_is_read_again_after_a_401(server: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old\n")
    with Api(server.access(token_file=str(tmp_path / "token"))) as api:
        api.list(MAPS)
        (tmp_path / "token").write_text("new\n")
        server.tokens = {"new"}
        api.list(MAPS)
    assert [seen.token for seen in server.requests] == ["old", "old", "new"]


def test_a_token_file_is_read_again_after_a_while(
    server: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("old")
    with Api(server.access(token_file=str(tmp_path / "token"))) as api:
        api.list(MAPS)
        (tmp_path / "token").write_text("new")
        api.list(MAPS)
        monkeypatch.setattr(credentials_module, "TOKEN_SECONDS", -1.0)
        api.list(MAPS)
    assert [seen.token for seen in server.requests] == ["old", "old", "new"]


def test_a_missing_token_file_is_told(server: FakeApi, tmp_path: Path) -> None:
    with (
        Api(server.access(token_file=str(tmp_path / "gone"), user="u")) as api,
        pytest.raises(BackendError) as caught,
    ):
        api.list(MAPS)
    assert f"cannot read the token of user 'u': {tmp_path}/gone: No such file" in caught.value.message


def test_who_logs_in_again_meanwhile_is_let_in(server: FakeApi, tmp_path: Path) -> None:
    path = tmp_path / "config"

    def login(token: str) -> None:
        (tmp_path / "ca.crt").write_text(server.certificates.text("ca.crt"))
        path.write_text(
            yaml.safe_dump(
                {
                    "clusters": [
                        {"name": "c", "cluster": {"server": server.url, "certificate-authority": "ca.crt"}}
                    ],
                    "users": [{"name": "u", "user": {"token": token}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )

    login("old")
    with Api(kubeconfig.load(path=str(path), environ={})) as api:
        api.list(MAPS)
        server.tokens = {"new"}
        login("new")
        api.list(MAPS)
    assert [seen.token for seen in server.requests] == ["old", "old", "new"]


@pytest.mark.thorough
def test_a_plugin_is_asked_once_and_again_after_a_401(server: FakeApi, giver: Giver) -> None:
    giver.gives({"token": "first"}, {"token": "second"})
    server.tokens = {"first"}
    with Api(server.access(plugin=giver.plugin())) as api:
        api.list(MAPS)
        api.list(MAPS)
        server.tokens = {"second"}
        api.list(MAPS)
    assert [seen.token for seen in server.requests] == ["first", "first", "first", "second"]
    assert giver.runs == 2


@pytest.mark.thorough
def test_a_plugin_whose_fresh_token_is_refused_too_ends_it(server: FakeApi, giver: Giver) -> None:
    giver.gives({"token": "first"}, {"token": "second"})
    server.tokens = {"third"}
    with Api(server.access(plugin=giver.plugin())) as api, pytest.raises(ApiError) as caught:
        api.list(MAPS)
    assert (caught.value.status, giver.runs) == (401, 2)


@pytest.mark.thorough
def test_an_expired_answer_of_a_plugin_is_not_used(server: FakeApi, giver: Giver) -> None:
    giver.gives(
        {"token": "first", "expirationTimestamp": in_seconds(-5)},
        {"token": "second", "expirationTimestamp": in_seconds(600)},
    )
    with Api(server.access(plugin=giver.plugin())) as api:
        api.list(MAPS)
        api.list(MAPS)
        api.list(MAPS)
    assert [seen.token for seen in server.requests] == ["first", "second", "second"]


@pytest.mark.thorough
def test_a_plugin_can_hand_out_a_certificate_and_change_it(server: FakeApi, giver: Giver) -> None:
    pair = {
        "clientCertificateData": server.certificates.text("alice.crt"),
        "clientKeyData": server.certificates.text("alice.key"),
    }
    other = {
        "clientCertificateData": server.certificates.text("server.crt"),
        "clientKeyData": server.certificates.text("server.key"),
    }
    giver.gives({**pair, "expirationTimestamp": in_seconds(-5)}, other)
    with Api(server.access(plugin=giver.plugin())) as api:
        api.list(MAPS)
        api.list(MAPS)
    assert [seen.peer for seen in server.requests] == ["alice", "server"]


@pytest.mark.parametrize("api", [V1, "client.authentication.k8s.io/v1beta1"])
def test_a_plugin_is_told_the_protocol_the_cluster_and_its_variables(
    server: FakeApi, giver: Giver, api: str
) -> None:
    giver.gives({"token": "t"}, api=api)
    plugin = giver.plugin(api=api, cluster_info=True, config={"audience": "x"}, env={"GREETING": "hello"})
    Credentials(server.access(plugin=plugin)).current()
    told = giver.told()
    assert (told["apiVersion"], told["kind"], told["spec"]["interactive"]) == (api, "ExecCredential", False)
    assert told["spec"]["cluster"]["server"] == server.url
    assert told["spec"]["cluster"]["config"] == {"audience": "x"}
    assert (giver.place / "env").read_text() == "hello"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fields", "kind", "told", "hint"),
    [
        (
            {"command": "no-such-plugin", "install_hint": "get it at x"},
            BackendError,
            "not on this machine",
            "get it at x",
        ),
        ({"command": "no-such-plugin"}, BackendError, "not on this machine", "install no-such-plugin"),
        ({"api": "client.authentication.k8s.io/v1alpha1"}, Unsupported, "v1alpha1", "update the plugin"),
        (
            {"args": ("-c", "import sys; sys.exit('please log in')")},
            BackendError,
            "ended with 1: please log in",
            "log in",
        ),
        ({"args": ("-c", "print('hm')")}, BackendError, "returned an invalid ExecCredential", ""),
        ({"interactive": "Always"}, BackendError, "interactive terminal", "log in once in a terminal"),
    ],
)
def test_a_plugin_that_does_not_help_is_told_with_user_and_file(
    server: FakeApi, giver: Giver, fields: dict[str, Any], kind: type[MpiJobError], told: str, hint: str
) -> None:
    access = server.access(plugin=giver.plugin(**fields), user="u", source="/home/me/.kube/config")
    with pytest.raises(kind, match=told) as caught:
        Credentials(access).current()
    assert "(user 'u' in /home/me/.kube/config)" in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("status", [{}, {"clientCertificateData": "x"}])
def test_a_plugin_that_grants_nothing_is_told(server: FakeApi, giver: Giver, status: dict[str, str]) -> None:
    giver.gives(status)
    with pytest.raises(BackendError, match="neither a token nor a certificate"):
        Credentials(server.access(plugin=giver.plugin())).current()


def test_a_plugin_that_answers_in_another_version_is_told(server: FakeApi, giver: Giver) -> None:
    giver.gives({"token": "t"}, api="client.authentication.k8s.io/v1beta1")
    with pytest.raises(BackendError, match=r"returned .*v1beta1, expected .*v1"):
        Credentials(server.access(plugin=giver.plugin())).current()


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize(
    "answer",
    [
        '{"token": "hush-hush"',
        '{"apiVersion": "v9", "kind": "ExecCredential", "status": {"token": "hush-hush"}}',
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": "hush-hush"}',
    ],
)
def test_what_a_plugin_printed_is_never_quoted(server: FakeApi, giver: Giver, answer: str) -> None:
    giver.gives(answer)
    with pytest.raises(MpiJobError) as caught:
        Credentials(server.access(plugin=giver.plugin(env={"PASSWORD": HUSH}))).current()
    assert HUSH not in "".join(traceback.format_exception(caught.value))


@pytest.mark.security
@pytest.mark.parametrize("status", [401, 403, 500])
def test_no_error_of_the_api_shows_a_token(server: FakeApi, status: int) -> None:
    server.says(*[lambda handler: handler.refuse(status, "No", "no")] * 5)
    access = server.access(token=HUSH, password=HUSH)
    credentials = Credentials(access)
    with Api(access) as api, pytest.raises(ApiError) as caught:
        api.create(MAPS, {"data": {}})
    shown = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value)) + repr(api)
    assert HUSH not in shown + repr(credentials.current()) + repr(access)
