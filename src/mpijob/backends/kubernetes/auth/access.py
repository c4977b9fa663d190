"""How one cluster is reached and who we are there; `kubeconfig` finds it out, `connection` uses it.

An `Access` is a frozen value; `credentials` keeps its proof of identity fresh. Nothing here shows a secret in its
`repr`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec


class Redacted(msgspec.Struct, frozen=True):
    """A value that holds secrets and shows none of itself."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class Plugin(Redacted, frozen=True, kw_only=True):
    """A program that hands out credentials (client.authentication.k8s.io)."""

    api: str
    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    install_hint: str = ""
    interactive: str = "IfAvailable"  # or Never, Always
    cluster_info: bool = False
    config: Any = None  # what the kubeconfig says about the cluster for the plugin's eyes


class Impersonation(msgspec.Struct, frozen=True):
    """Whom we act as."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster and one user of it; certificates and keys are PEM texts."""

    server: str
    namespace: str = "default"
    context: str = ""
    cluster: str = ""
    user: str = ""
    source: str = ""  # the kubeconfig file or files, "" for a pod's service account
    ca: str = ""
    certificate: str = ""
    key: str = ""
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    plugin: Plugin | None = None
    proxy: str = ""
    tls_server_name: str = ""
    insecure: bool = False
    compress: bool = True
    impersonate: Impersonation | None = None
    again: str = ""  # how a visitor of a server of ours, whose token this is, logs in again

    def __repr__(self) -> str:
        return f"Access({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in ("server", "context", "user", "namespace")]

    @property
    def login_hint(self) -> str:
        """How the user logs in again."""
        if self.again:
            return self.again
        if self.plugin:
            return f"log in with your credential plugin: {self.plugin.command}"
        if not self.source:
            return "the pod's service account is not accepted: its token file may be outdated, or the account deleted"
        where = f"user '{self.user}' of {self.source}"
        if self.token.startswith("sha256~") or "/" in self.user:
            return f"log in again: oc login --server={self.server} ({where})"
        if self.certificate:
            return f"the certificate of {where} is expired or unknown there: fetch a fresh kubeconfig"
        return f"log in again (`oc login`, or your cluster's own way): the credentials are those of {where}"


class Credential(Redacted, frozen=True):
    """What is shown to the server; compared by identity to see whether it is still the same."""

    authorization: str = ""
    certificate: str = ""
    key: str = ""
    expires: float | None = None  # seconds since 1970


def identifying(access: Access, proof: Credential) -> Iterator[tuple[str, str]]:
    """Yield the headers that say who we are, and whom we act as."""
    if proof.authorization:
        yield "Authorization", proof.authorization
    who = access.impersonate
    if who is None:
        return
    yield "Impersonate-User", who.user
    if who.uid:
        yield "Impersonate-Uid", who.uid
    yield from (("Impersonate-Group", group) for group in who.groups)
    for key, values in who.extra.items():
        name = f"Impersonate-Extra-{quote(key, safe='')}"  # the server takes %XX for what no name may have
        yield from ((name, value) for value in values)
