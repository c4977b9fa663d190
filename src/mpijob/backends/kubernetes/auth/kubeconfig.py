"""Finds the cluster and the user: in kubeconfig files, merged as kubectl merges them, or from a pod's service
account.

The first file that defines a cluster, user or context of a name wins, and so does the first
`current-context`. Relative paths are relative to their file. Errors name file and context and never quote the
contents, which may be secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.auth.access import Access, Impersonation, Plugin, Redacted
from mpijob.errors import BackendError, NotFound, Unsupported
from mpijob.outbound.connection import proxy_for

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# The name of a cluster's `extensions` entry that is passed to plugins.
_EXTENSION = "client.authentication.k8s.io/exec"


class ContextInfo(msgspec.Struct, frozen=True):
    """A context of the kubeconfig, for users who choose one."""

    name: str
    cluster: str
    user: str
    namespace: str
    server: str
    current: bool


def load(*, path: str = "", context: str = "", environ: Mapping[str, str] | None = None) -> Access:
    """Return the access for a context, by default the current one; raise BackendError or NotFound.

    `path` replaces KUBECONFIG and may name several files. Without a kubeconfig in a pod, its service account
    is used.
    """
    environ = os.environ if environ is None else environ
    merged = read(path, environ)
    if merged.contexts or merged.current or path or context:
        return _access(merged, context or merged.current, environ)
    return in_cluster(environ) or _no_cluster(merged, environ)


def contexts(*, path: str = "", environ: Mapping[str, str] | None = None) -> tuple[ContextInfo, ...]:
    """Return all contexts of the kubeconfig, sorted by name."""
    merged = read(path, os.environ if environ is None else environ)
    return tuple(_info(name, merged) for name in sorted(merged.contexts))


def in_cluster(environ: Mapping[str, str]) -> Access | None:
    """Return the access of this pod's service account; None outside a cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token_file = os.path.join(SERVICE_ACCOUNT, "token")
    if not host or not port or not os.path.isfile(token_file):
        return None
    # The host may be an IPv6 address.
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return Access(
        server=server,
        namespace=environ.get("POD_NAMESPACE")
        or _text(os.path.join(SERVICE_ACCOUNT, "namespace"))
        or "default",
        user="the pod's service account",
        ca=_text(os.path.join(SERVICE_ACCOUNT, "ca.crt")),
        token_file=token_file,
        proxy=proxy_for(server, environ),
    )


def _no_cluster(merged: Merged, environ: Mapping[str, str]) -> NoReturn:
    searched = merged.place or os.pathsep.join(candidates("", environ))
    raise BackendError(
        f"no cluster is configured: no kubeconfig with a context (searched {searched}), and not running in a pod",
        hint="log in (`oc login SERVER`), or put the kubeconfig of your cluster there; KUBECONFIG names another file",
    )


def _info(name: str, merged: Merged) -> ContextInfo:
    context = typed(merged.contexts[name], Context, f"context '{name}'")
    found = merged.clusters.get(context.cluster)
    server = typed(found, Cluster, f"cluster '{context.cluster}'").server if found else ""
    return ContextInfo(
        name, context.cluster, context.user, context.namespace or "default", server, name == merged.current
    )


def _access(merged: Merged, name: str, environ: Mapping[str, str]) -> Access:
    if not name:
        raise BackendError(
            f"the kubeconfig {merged.place} has no current context",
            hint=f"choose one with --context: {', '.join(sorted(merged.contexts)) or 'it has none'}",
        )
    if not merged.contexts:
        _no_cluster(merged, environ)
    if name not in merged.contexts:
        raise NotFound(
            f"there is no context '{name}' in the kubeconfig {merged.place}",
            hint=f"choose one of: {', '.join(sorted(merged.contexts))}",
        )
    context = typed(merged.contexts[name], Context, f"context '{name}'")
    cluster_at = _entry(merged.clusters, context.cluster, "cluster", name, merged)
    cluster = typed(cluster_at, Cluster, f"cluster '{context.cluster}'")
    user_at = _entry(merged.users, context.user, "user", name, merged) if context.user else Found({}, "")
    user = typed(user_at, User, f"user '{context.user}'")
    return _build(name, context, cluster, cluster_at.file, user, user_at.file, merged.place, environ)


def _entry(entries: dict[str, Found], name: str, what: str, context: str, merged: Merged) -> Found:
    if name in entries:
        return entries[name]
    raise BackendError(
        f"context '{context}' names the {what} '{name}', which is not in the kubeconfig {merged.place}",
        hint=f"add it, or name its file in KUBECONFIG too; {what}s there: {', '.join(sorted(entries)) or 'none'}",
    )


def _build(
    name: str,
    context: Context,
    cluster: Cluster,
    cluster_file: str,
    user: User,
    user_file: str,
    source: str,
    environ: Mapping[str, str],
) -> Access:
    server = _address(cluster.server, f"cluster '{context.cluster}' in {cluster_file}")
    if user.auth_provider is not None and not (user.exec or user.token or user.token_file):
        _refuse_provider(user.auth_provider, context.user, user_file)
    certificate = _pem(user.client_certificate_data, user.client_certificate, user_file, "client-certificate")
    key = _pem(user.client_key_data, user.client_key, user_file, "client-key")
    if bool(certificate) != bool(key):
        raise BackendError(f"user '{context.user}' in {user_file} has only one of certificate and key")
    return Access(
        server=server,
        namespace=context.namespace or "default",
        context=name,
        cluster=context.cluster,
        user=context.user,
        source=source,
        ca=_pem(
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            cluster_file,
            "certificate-authority",
        ),
        certificate=certificate,
        key=key,
        token=user.token,
        token_file=_relative_to(user_file, user.token_file),
        username=user.username,
        password=user.password,
        plugin=_plugin(user.exec, cluster, user_file) if user.exec else None,
        proxy=cluster.proxy_url or proxy_for(server, environ),
        tls_server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        compress=not cluster.disable_compression,
        impersonate=_impersonation(user),
    )


def _address(url: str, where: str) -> str:
    """Return a server's address without its trailing slash; raise BackendError if it is not usable."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BackendError(f"{where} has no usable server address", hint="the format is https://HOST:6443")
    if parts.username or parts.query or parts.fragment:
        raise BackendError(f"{where}: a server address holds no user, query or fragment")
    return url.rstrip("/")


def _refuse_provider(provider: dict[str, Any], user: str, file: str) -> None:
    kind = str(provider.get("name") or "")
    # Removed in Kubernetes 1.26 (gcp, azure), or never supported by us.
    replacements = {
        "gcp": "gke-gcloud-auth-plugin",
        "azure": "kubelogin convert-kubeconfig",
        "oidc": "kubelogin (oidc-login)",
    }
    raise Unsupported(
        f"user '{user}' in {file} logs in through the auth-provider '{kind}', which Kubernetes no longer supports",
        hint=f"switch the user to an exec plugin: {replacements.get(kind, 'ask your cluster for one')}; or use a token",
    )


def _plugin(entry: Exec, cluster: Cluster, file: str) -> Plugin:
    config = next((e.get("extension") for e in cluster.extensions if e.get("name") == _EXTENSION), None)
    return Plugin(
        api=entry.api_version,
        command=_relative_to(file, entry.command) if "/" in entry.command else entry.command,
        args=tuple(entry.args),
        env={variable.name: variable.value for variable in entry.env},
        install_hint=entry.install_hint,
        interactive=entry.interactive_mode,
        cluster_info=entry.provide_cluster_info,
        config=config,
    )


def _impersonation(user: User) -> Impersonation | None:
    if not user.act_as:
        return None
    extra = {key: tuple(values) for key, values in user.as_user_extra.items()}
    return Impersonation(user.act_as, user.as_uid, tuple(user.as_groups), extra)


def _relative_to(file: str, path: str) -> str:
    """Return the path that is relative to its kubeconfig; "" for no path."""
    return os.path.join(os.path.dirname(os.path.abspath(file)), path) if path else ""


def _pem(data: str, path: str, file: str, what: str) -> str:
    if data:
        return _decode(data, file, what)
    if not path:
        return ""
    place = _relative_to(file, path)
    try:
        with open(place, encoding="ascii", errors="replace") as opened:
            return opened.read()
    except OSError as error:
        raise BackendError(f"{what} of the kubeconfig {file}: {place}: {error.strerror}") from None


def _decode(data: str, file: str, what: str) -> str:
    from binascii import Error, a2b_base64

    try:
        return a2b_base64("".join(data.split()), strict_mode=True).decode("ascii")
    except (Error, ValueError):
        raise BackendError(
            f"{what}-data of the kubeconfig {file} is not valid base64 of a PEM text"
        ) from None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


T = TypeVar("T")


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """The `cluster` of a cluster entry."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[dict[str, Any]] = []


class Variable(Redacted, frozen=True):
    """An environment variable of a plugin."""

    name: str
    value: str = ""


class Exec(Redacted, frozen=True, rename="camel"):
    """The `exec` of a user entry."""

    command: str
    api_version: str = ""
    args: list[str] = []
    env: list[Variable] = []
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


class User(Redacted, frozen=True, rename="kebab"):
    """The `user` of a user entry."""

    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    act_as: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    auth_provider: dict[str, Any] | None = None
    exec: Exec | None = None


class Context(msgspec.Struct, frozen=True):
    """The `context` of a context entry."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class Found(msgspec.Struct, frozen=True):
    """An entry that is not decoded yet, and its file."""

    entry: Any
    file: str


class Merged(msgspec.Struct, frozen=True):
    """The entries of all files."""

    files: tuple[str, ...]
    current: str
    clusters: dict[str, Found]
    users: dict[str, Found]
    contexts: dict[str, Found]

    @property
    def place(self) -> str:
        """The files, separated as in KUBECONFIG."""
        return os.pathsep.join(self.files)


def candidates(path: str, environ: Mapping[str, str]) -> list[str]:
    """Return the files that are read if they exist."""
    given = path or environ.get("KUBECONFIG", "")
    if given:
        return [os.path.expanduser(part) for part in given.split(os.pathsep) if part]
    home = environ.get("HOME") or os.path.expanduser("~")
    return [os.path.join(home, ".kube", "config")]


def read(path: str, environ: Mapping[str, str]) -> Merged:
    """Return the entries of all kubeconfig files; `path` replaces KUBECONFIG."""
    files = tuple(name for name in candidates(path, environ) if os.path.exists(name))
    if path and not files:
        raise BackendError(f"no kubeconfig at {path}", hint="name a file that exists, or leave it out")
    configs = {file: _config(file) for file in files}
    current = next((name for config in configs.values() if (name := config.get("current-context"))), "")
    found = Merged(files, str(current), {}, {}, {})
    for file, config in configs.items():
        _take(config, "clusters", "cluster", found.clusters, file)
        _take(config, "users", "user", found.users, file)
        _take(config, "contexts", "context", found.contexts, file)
    return found


def _config(file: str) -> dict[str, Any]:
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not a text file file"
        raise BackendError(f"cannot read the kubeconfig {file}: {why}") from None
    if not text.strip():
        return {}
    value = _parse(text, file)
    if not isinstance(value, dict):
        raise BackendError(f"the kubeconfig {file} is not a mapping of clusters, users and contexts")
    return value


def _parse(text: str, file: str) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Not chained: the error's text quotes the file, which contains secrets.
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise BackendError(f"the kubeconfig {file}{where} is not valid YAML") from None


def _take(config: dict[str, Any], plural: str, name: str, into: dict[str, Found], file: str) -> None:
    here: set[str] = set()
    entries = config.get(plural) or []
    if not isinstance(entries, list):
        raise BackendError(f"the kubeconfig {file}: '{plural}' is not a list")
    for entry in entries:
        entry_name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(entry_name, str):
            raise BackendError(f"the kubeconfig {file}: an entry of '{plural}' has no name")
        if entry_name in here:
            raise BackendError(f"the kubeconfig {file}: '{entry_name}' is defined twice under '{plural}'")
        here.add(entry_name)
        into.setdefault(entry_name, Found(entry.get(name) or {}, file))


def typed(found: Found, shape: type[T], what: str) -> T:
    """Return the entry as its type; raise BackendError with its place if it does not match."""
    try:
        # kubectl treats a null as a missing field.
        return codec.convert(_without_nulls(found.entry), shape)
    except msgspec.ValidationError as error:
        raise BackendError(f"the kubeconfig {found.file}, {what}: {error}") from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
