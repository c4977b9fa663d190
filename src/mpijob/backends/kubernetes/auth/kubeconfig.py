"""Finds the cluster and the user: kubeconfig files, merged as kubectl merges them, or a pod's own account.

The first file that has a cluster, user or context of a name wins, and so does the first
`current-context`. Relative paths count from the file that they stand in. What is wrong is told with
file and context; what stands in the files is never quoted, since it may be a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob.backends.kubernetes.auth.access import Access, Impersonation, Plugin
from mpijob.backends.kubernetes.auth.kubeconfig_files import (
    Cluster,
    Context,
    Exec,
    Found,
    Merged,
    User,
    candidates,
    read,
    typed,
)
from mpijob.backends.kubernetes.client import proxy_connect
from mpijob.errors import BackendError, NotFound, Unsupported

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_EXTENSION = "client.authentication.k8s.io/exec"  # where a cluster entry keeps words for plugins


class ContextInfo(msgspec.Struct, frozen=True):
    """One context, as a user chooses among them."""

    name: str
    cluster: str
    user: str
    namespace: str
    server: str
    current: bool


def load(*, path: str = "", context: str = "", environ: Mapping[str, str] | None = None) -> Access:
    """Return how to reach the cluster of a context, by default the current one.

    `path` is one kubeconfig or several as in KUBECONFIG, which it stands in for. Where there is no
    kubeconfig at all and this is a pod of a cluster, its service account is used.
    """
    environ = os.environ if environ is None else environ
    merged = read(path, environ)
    if merged.contexts or merged.current or path or context:
        return _access(merged, context or merged.current, environ)
    return in_cluster(environ) or _nothing(merged, environ)


def contexts(*, path: str = "", environ: Mapping[str, str] | None = None) -> tuple[ContextInfo, ...]:
    """Return every context of the kubeconfig, by name."""
    merged = read(path, os.environ if environ is None else environ)
    return tuple(_info(name, merged) for name in sorted(merged.contexts))


def in_cluster(environ: Mapping[str, str]) -> Access | None:
    """Return the access of this pod's service account, or None outside a cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token_file = os.path.join(SERVICE_ACCOUNT, "token")
    if not host or not port or not os.path.isfile(token_file):
        return None
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return Access(
        server=server,
        namespace=environ.get("POD_NAMESPACE")
        or _text(os.path.join(SERVICE_ACCOUNT, "namespace"))
        or "default",
        user="the pod's service account",
        ca=_text(os.path.join(SERVICE_ACCOUNT, "ca.crt")),
        token_file=token_file,
        proxy=proxy_connect.choose(server, environ),
    )


def _nothing(merged: Merged, environ: Mapping[str, str]) -> Access:
    looked = merged.place or os.pathsep.join(candidates("", environ))
    raise BackendError(
        f"no cluster is known here: no kubeconfig with a context (looked at {looked}), and this is no pod of a cluster",
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
    if name not in merged.contexts:
        raise NotFound(
            f"there is no context '{name}' in the kubeconfig {merged.place}",
            hint=f"choose one of: {', '.join(sorted(merged.contexts)) or 'it has none'}",
        )
    context = typed(merged.contexts[name], Context, f"context '{name}'")
    cluster_at = _entry(merged.clusters, context.cluster, "cluster", name, merged)
    cluster = typed(cluster_at, Cluster, f"cluster '{context.cluster}'")
    user_at = _entry(merged.users, context.user, "user", name, merged) if context.user else Found({}, "")
    user = typed(user_at, User, f"user '{context.user}'")
    return _joined(name, context, cluster, cluster_at.file, user, user_at.file, merged.place, environ)


def _entry(entries: dict[str, Found], name: str, what: str, context: str, merged: Merged) -> Found:
    if name in entries:
        return entries[name]
    raise BackendError(
        f"context '{context}' names the {what} '{name}', which is not in the kubeconfig {merged.place}",
        hint=f"add it, or name its file in KUBECONFIG too; {what}s there: {', '.join(sorted(entries)) or 'none'}",
    )


def _joined(
    name: str,
    context: Context,
    cluster: Cluster,
    cluster_file: str,
    user: User,
    user_file: str,
    source: str,
    environ: Mapping[str, str],
) -> Access:
    server = proxy_connect.address(cluster.server, f"cluster '{context.cluster}' in {cluster_file}")
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
        token_file=_beside(user_file, user.token_file),
        username=user.username,
        password=user.password,
        plugin=_plugin(user.exec, cluster, user_file) if user.exec else None,
        proxy=cluster.proxy_url or proxy_connect.choose(server, environ),
        tls_server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        compress=not cluster.disable_compression,
        impersonate=_impersonation(user),
    )


def _refuse_provider(provider: dict[str, Any], user: str, file: str) -> None:
    kind = str(provider.get("name") or "")
    better = {
        "gcp": "gke-gcloud-auth-plugin",
        "azure": "kubelogin convert-kubeconfig",
        "oidc": "kubelogin (oidc-login)",
    }
    raise Unsupported(
        f"user '{user}' in {file} logs in through the auth-provider '{kind}', which Kubernetes has given up",
        hint=f"switch the user to an exec plugin: {better.get(kind, 'ask your cluster for one')}; or use a token",
    )


def _plugin(entry: Exec, cluster: Cluster, file: str) -> Plugin:
    config = next((e.get("extension") for e in cluster.extensions if e.get("name") == _EXTENSION), None)
    return Plugin(
        api=entry.api_version,
        command=_beside(file, entry.command) if "/" in entry.command else entry.command,
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


def _beside(file: str, path: str) -> str:
    """Return the path as it counts from its kubeconfig."""
    return os.path.join(os.path.dirname(os.path.abspath(file)), path) if path else ""


def _pem(data: str, path: str, file: str, what: str) -> str:
    if data:
        return _decoded(data, file, what)
    if not path:
        return ""
    place = _beside(file, path)
    try:
        with open(place, encoding="ascii", errors="replace") as opened:
            return opened.read()
    except OSError as error:
        raise BackendError(f"{what} of the kubeconfig {file}: {place}: {error.strerror}") from None


def _decoded(data: str, file: str, what: str) -> str:
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
