"""How one cluster is reached and who we are there; `kubeconfig` finds it out, `connection` uses it.

An `Access` is a frozen value. `Credentials` keeps its proof of identity fresh: token files are read
again, plugins run again when their answer has expired or was refused, and a kubeconfig into which
the user has logged in again meanwhile is seen. Nothing here shows a secret in its `repr`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from mpijob.errors import BackendError, MpiJobError

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.auth.kubeconfig import ContextInfo

TOKEN_SECONDS = 60.0  # how long a token file's content is believed, as Kubernetes' own clients do


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
            return f"log in with the program that hands out your credentials: {self.plugin.command}"
        if not self.source:
            return "the pod's service account is not accepted: its token file may be outdated, or the account deleted"
        where = f"user '{self.user}' of {self.source}"
        if self.token.startswith("sha256~") or "/" in self.user:
            return f"log in again: oc login --server={self.server} ({where})"
        if self.certificate:
            return f"the certificate of {where} is expired or unknown there: fetch a fresh kubeconfig"
        return f"log in again (`oc login`, or your cluster's own way): the credentials are those of {where}"


def load(*, path: str = "", context: str = "", environ: Mapping[str, str] | None = None) -> Access:
    """Return how to reach the cluster of a context, by default the current one; see `kubeconfig.load`."""
    from mpijob.backends.kubernetes.auth import kubeconfig

    return kubeconfig.load(path=path, context=context, environ=environ)


def contexts(*, path: str = "", environ: Mapping[str, str] | None = None) -> tuple[ContextInfo, ...]:
    """Return every context of the kubeconfig, by name."""
    from mpijob.backends.kubernetes.auth import kubeconfig

    return kubeconfig.contexts(path=path, environ=environ)


class Credential(Redacted, frozen=True):
    """What is shown to the server; compared by identity to see whether it is still the same."""

    authorization: str = ""
    certificate: str = ""
    key: str = ""
    expires: float | None = None  # seconds since 1970


class Credentials:
    """The present proof of identity of an access; safe to use from several threads."""

    def __init__(self, access: Access, environ: Mapping[str, str] | None = None) -> None:
        self._access = access
        self._environ = os.environ if environ is None else environ
        self._lock = threading.Lock()
        self._proof: Credential | None = None
        self._read_at = 0.0

    def current(self) -> Credential:
        """Return what to show now; a plugin is run when its last answer has expired."""
        with self._lock:
            if self._proof is None or self._outdated(self._proof):
                self._proof = self._make()
            return self._proof

    def renew(self, refused: Credential) -> bool:
        """Look for something better after a 401; return whether there is something else to show."""
        with self._lock:
            if self._proof is not None and self._proof is not refused:
                return True  # another thread has done it meanwhile
            self._access = self._logged_in_again()
            self._proof = self._make()
            return bool(self._access.plugin) or self._proof != refused

    def _outdated(self, proof: Credential) -> bool:
        if self._access.token_file:
            return time.monotonic() - self._read_at > TOKEN_SECONDS
        return proof.expires is not None and time.time() >= proof.expires

    def _make(self) -> Credential:
        access = self._access
        if access.plugin:
            return self._asked(access.plugin)
        if token := self._token():
            return Credential(f"Bearer {token}", access.certificate, access.key)
        if access.username:
            return Credential(_basic(access.username, access.password), access.certificate, access.key)
        return Credential("", access.certificate, access.key)

    def _asked(self, plugin: Plugin) -> Credential:
        from mpijob.backends.kubernetes.auth import (
            exec_plugin,  # starts a program: only for those who need it
        )

        grant = exec_plugin.ask(plugin, self._access, self._environ)
        certificate = grant.certificate or self._access.certificate
        key = grant.key or self._access.key
        return Credential(f"Bearer {grant.token}" if grant.token else "", certificate, key, grant.expires)

    def _token(self) -> str:
        access = self._access
        if not access.token_file:
            return access.token
        self._read_at = time.monotonic()
        try:
            with open(access.token_file, encoding="ascii", errors="replace") as file:
                return file.read().strip() or access.token
        except OSError as error:
            if access.token:
                return access.token
            raise BackendError(
                f"cannot read the token of user '{access.user}': {access.token_file}: {error.strerror}",
                hint=access.login_hint,
            ) from error

    def _logged_in_again(self) -> Access:
        """Return the access as the kubeconfig has it now; `oc login` writes a new token there."""
        access = self._access
        if not access.source or access.plugin or access.token_file:
            return access
        try:
            fresh = load(path=access.source, context=access.context, environ=self._environ)
        except MpiJobError:  # it is being written, or gone: what we have is all there is
            return access
        return fresh if fresh.server == access.server else access


def _basic(username: str, password: str) -> str:
    import base64

    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


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
