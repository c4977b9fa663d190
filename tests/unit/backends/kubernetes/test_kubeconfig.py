"""Which cluster, which user: kubeconfig files as kubectl reads them, and a pod's own account."""

from __future__ import annotations

import base64
import os
import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.pretty import pretty_repr

from mpijob.backends.kubernetes.auth import kubeconfig
from mpijob.backends.kubernetes.auth.access import Access
from mpijob.errors import BackendError, MpiJobError, NotFound, Unsupported

SECRET = "sha256~Zm9vYmFyc2VjcmV0"

AS_OC_WRITES_IT = f"""\
apiVersion: v1
clusters:
- cluster:
    insecure-skip-tls-verify: true
    server: https://api.ocp.test:6443
  name: api-ocp-test:6443
contexts:
- context:
    cluster: api-ocp-test:6443
    namespace: team-cv
    user: jane/api-ocp-test:6443
  name: team-cv/api-ocp-test:6443/jane
current-context: team-cv/api-ocp-test:6443/jane
kind: Config
preferences: {{}}
users:
- name: jane/api-ocp-test:6443
  user:
    token: {SECRET}
"""


def write(path: Path, **parts: Any) -> Path:
    """Write a kubeconfig: `clusters={"x": {...}}`, `users`, `contexts`, `current`."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": parts.get("current", ""),
        **{
            plural: [{"name": name, plural[:-1]: entry} for name, entry in parts.get(plural, {}).items()]
            for plural in ("clusters", "users", "contexts")
        },
    }
    path.write_text(yaml.safe_dump(config))
    return path


def one(path: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    return write(
        path,
        clusters={"c": {"server": "https://c.test:6443", **(cluster or {})}},
        users={"u": user or {}},
        contexts={"x": {"cluster": "c", "user": "u"}},
        current="x",
    )


def load(path: Path | str, context: str = "", **environ: str) -> Access:
    return kubeconfig.load(path=str(path), context=context, environ=environ)


def test_a_login_of_openshift_is_found_with_its_namespace_and_token(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(AS_OC_WRITES_IT)
    access = load(tmp_path / "config")
    assert (access.server, access.namespace, access.token) == ("https://api.ocp.test:6443", "team-cv", SECRET)
    assert access.insecure
    assert "oc login --server=https://api.ocp.test:6443" in access.login_hint


def test_what_is_not_usual_is_read_all_the_same(tmp_path: Path) -> None:
    for odd in (AS_OC_WRITES_IT.replace("team-cv\n", "&n team-cv # mine\n"), "{a: b}", "{'clusters': []}"):
        (tmp_path / "config").write_text(odd)
        found = kubeconfig.contexts(path=str(tmp_path / "config"), environ={})
        assert [context.namespace for context in found] == ["team-cv"] * ("mine" in odd)


def test_the_first_file_of_kubeconfig_wins_entry_by_entry(tmp_path: Path) -> None:
    first = write(tmp_path / "1", clusters={"c": {"server": "https://first"}}, current="x")
    second = write(
        tmp_path / "2",
        clusters={"c": {"server": "https://second"}, "d": {"server": "https://d"}},
        users={"u": {"token": "t"}},
        contexts={"x": {"cluster": "c", "user": "u"}, "y": {"cluster": "d", "user": "u"}},
        current="y",
    )
    environ = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "absent"), str(first), str(second)])}
    assert kubeconfig.load(environ=environ).server == "https://first"
    assert kubeconfig.load(environ=environ, context="y").server == "https://d"
    found = [(info.name, info.server, info.current) for info in kubeconfig.contexts(environ=environ)]
    assert found == [("x", "https://first", True), ("y", "https://d", False)]


def test_the_home_directory_is_looked_at_when_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    one(tmp_path / ".kube" / "config")
    assert kubeconfig.load(environ={"HOME": str(tmp_path)}).context == "x"


def test_relative_paths_count_from_the_file_that_they_stand_in(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    for name in ("ca.crt", "u.crt", "u.key"):
        (tmp_path / "pki" / name).write_text(f"text of {name}")
    user = {"client-certificate": "pki/u.crt", "client-key": "pki/u.key", "tokenFile": "token"}
    access = load(one(tmp_path / "config", cluster={"certificate-authority": "pki/ca.crt"}, user=user))
    assert (access.ca, access.certificate, access.key) == ("text of ca.crt", "text of u.crt", "text of u.key")
    assert access.token_file == str(tmp_path / "token")


def test_data_in_the_file_wins_over_paths(tmp_path: Path) -> None:
    data = base64.b64encode(b"the authority").decode()
    cluster = {"certificate-authority": "absent", "certificate-authority-data": data}
    assert load(one(tmp_path / "config", cluster=cluster)).ca == "the authority"


def test_every_field_of_a_cluster_and_a_user_arrives(tmp_path: Path) -> None:
    cluster = {
        "server": "https://host.test/k8s/clusters/c-m-1/",
        "tls-server-name": "inner.test",
        "proxy-url": "socks5://127.0.0.1:1080",
        "disable-compression": True,
    }
    user = {
        "as": "carol",
        "as-uid": "7",
        "as-groups": ["team-a"],
        "as-user-extra": {"reason": ["test"]},
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "env": None},
    }
    access = load(one(tmp_path / "config", cluster=cluster, user=user), HTTPS_PROXY="http://other:1")
    assert access.server == "https://host.test/k8s/clusters/c-m-1"
    assert (access.tls_server_name, access.proxy, access.compress) == (
        "inner.test",
        "socks5://127.0.0.1:1080",
        False,
    )
    assert access.impersonate is not None
    assert (access.impersonate.user, access.impersonate.groups) == ("carol", ("team-a",))
    assert access.plugin is not None
    assert access.plugin.command == f"{tmp_path}/./plugin"


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"https_proxy": "p:3128"}, "http://p:3128"),
        ({"HTTP_PROXY": "http://p:3128"}, ""),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "other.test,.test"}, ""),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "c.test:443"}, "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": "c.test:6443"}, ""),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "c.tes"}, "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*"}, ""),
    ],
)
def test_proxies_are_chosen_as_other_tools_do(tmp_path: Path, environ: dict[str, str], proxy: str) -> None:
    assert load(one(tmp_path / "config"), **environ).proxy == proxy


def test_networks_and_this_machine_are_spared_the_proxy(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}
    inside = one(tmp_path / "in", cluster={"server": "https://10.1.2.3:6443"})
    outside = one(tmp_path / "out", cluster={"server": "https://11.1.2.3:6443"})
    here = one(tmp_path / "here", cluster={"server": "https://127.0.0.1:6443"})
    assert [load(path, **environ).proxy for path in (inside, outside, here)] == ["", "http://p:3128", ""]


def test_a_pod_uses_its_service_account_when_there_is_no_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("token", "t"), ("ca.crt", "the authority"), ("namespace", "team-a")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", str(tmp_path))
    environ = {"HOME": "/nowhere", "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = kubeconfig.load(environ=environ)
    assert (access.server, access.namespace, access.ca) == (
        "https://[fd00::1]:443",
        "team-a",
        "the authority",
    )
    assert access.token_file == str(tmp_path / "token")


def test_without_any_cluster_the_user_reads_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="no cluster is configured") as caught:
        kubeconfig.load(environ={"HOME": str(tmp_path)})
    assert str(tmp_path / ".kube" / "config") in caught.value.message
    assert "oc login" in caught.value.hint


def test_an_unknown_context_is_told_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no context 'prod'") as caught:
        load(one(tmp_path / "config"), context="prod")
    assert caught.value.hint == "choose one of: x"


@pytest.mark.parametrize(
    ("cluster", "user", "told"),
    [
        ({"server": "c.test:6443"}, {}, "no usable server address"),
        ({"server": "https://me:secret@c.test"}, {}, "holds no user"),
        ({"certificate-authority-data": "%%%"}, {}, "certificate-authority-data .* not valid base64"),
        ({"certificate-authority": "absent.crt"}, {}, "absent.crt: No such file"),
        ({}, {"client-certificate-data": "QQ=="}, "only one of certificate and key"),
        ({}, {"token": 12345}, r"user 'u': Expected `str`, got `int` - at `\$.token`"),
        ({}, {"exec": {"args": ["x"]}}, "missing required field `command`"),
    ],
)
def test_a_broken_entry_is_told_with_file_and_place(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], told: str
) -> None:
    with pytest.raises(BackendError, match=told) as caught:
        load(one(tmp_path / "config", cluster=cluster, user=user))
    assert str(tmp_path / "config") in caught.value.message


def test_a_context_without_its_cluster_names_what_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "config", contexts={"x": {"cluster": "gone", "user": ""}}, current="x")
    with pytest.raises(BackendError, match="context 'x' names the cluster 'gone'"):
        load(path)


def test_an_auth_provider_is_refused_with_what_replaces_it(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="auth-provider 'gcp'") as caught:
        load(
            one(
                tmp_path / "config",
                user={"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}},
            )
        )
    assert "gke-gcloud-auth-plugin" in caught.value.hint
    assert SECRET not in str(caught.value)


def test_a_name_that_stands_twice_is_refused_as_kubectl_does(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("users:\n- name: u\n  user: {}\n- name: u\n  user: {}\n")
    with pytest.raises(BackendError, match="'u' is defined twice under 'users'"):
        load(path)


@pytest.mark.security
@pytest.mark.parametrize(
    "text",
    [
        f"users:\n- name: u\n  user:\n    token: {SECRET}\n   oops: [",
        f"users:\n- {SECRET}\n",
        f'users: "{SECRET}"\n',
        f"- {SECRET}\n",
        f"contexts:\n- name: x\n  context:\n    cluster: [{SECRET}]\ncurrent-context: x\n",
    ],
)
def test_a_broken_kubeconfig_is_never_quoted(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(MpiJobError) as caught:
        load(tmp_path / "config")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.security
def test_an_access_shows_no_secret_of_itself() -> None:
    access = Access(server="https://c.test", token=SECRET, key=SECRET, password=SECRET, certificate=SECRET)
    shown = repr(access) + str(access) + pretty_repr(access) + repr([access])
    assert "https://c.test" in shown
    assert SECRET not in shown
