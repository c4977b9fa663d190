"""How a cluster is reached, and as which user. `kubeconfig` builds an `Access`, `credentials` keeps its
tokens fresh, `client.connection` uses it.

No secret appears in a `repr`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec


class Redacted(msgspec.Struct, frozen=True):
    """A value that contains secrets and does not show them in its `repr`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class Plugin(Redacted, frozen=True, kw_only=True):
    """A credential plugin of the kubeconfig (client.authentication.k8s.io)."""

    api: str
    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    install_hint: str = ""
    # IfAvailable, Never or Always.
    interactive: str = "IfAvailable"
    cluster_info: bool = False
    # The cluster's `extensions` entry for plugins, passed on unread.
    config: Any = None


class Impersonation(msgspec.Struct, frozen=True):
    """The user to act as (Impersonate-* headers)."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster and a user of it; certificates and keys are PEM texts."""

    server: str
    namespace: str = "default"
    context: str = ""
    cluster: str = ""
    user: str = ""
    # The kubeconfig file or files; "" for a pod's service account.
    source: str = ""
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
    # The hint for logging in again, for visitors of a server who brought the token.
    again: str = ""

    def __repr__(self) -> str:
        return f"Access({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in ("server", "context", "user", "namespace")]

    @property
    def login_hint(self) -> str:
        """The hint for users whose credentials were rejected."""
        if self.again:
            return self.again
        if self.plugin:
            return f"log in with your credential plugin: {self.plugin.command}"
        if not self.source:
            return "the pod's service account is not accepted: its token file may be outdated, or the account deleted"
        where = f"user '{self.user}' of {self.source}"
        # OpenShift's tokens begin so, and `oc login` names users USER/SERVER.
        if self.token.startswith("sha256~") or "/" in self.user:
            return f"log in again: oc login --server={self.server} ({where})"
        if self.certificate:
            return f"the certificate of {where} is expired or unknown there: fetch a fresh kubeconfig"
        return f"log in again (`oc login`, or your cluster's own way): the credentials are those of {where}"


class Credential(Redacted, frozen=True):
    """What is sent to the server; a new object means new credentials."""

    authorization: str = ""
    certificate: str = ""
    key: str = ""
    # Seconds since 1970.
    expires: float | None = None


def identifying(access: Access, proof: Credential) -> Iterator[tuple[str, str]]:
    """Yield the headers with the credentials and the impersonated user."""
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
        # Keys contain slashes, which no header name may have; the server decodes %XX.
        name = f"Impersonate-Extra-{quote(key, safe='')}"
        yield from ((name, value) for value in values)
