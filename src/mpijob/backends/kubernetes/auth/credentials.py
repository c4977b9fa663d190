"""Keeps the proof of identity of an access fresh.

Token files are read again, plugins run again when their answer has expired or was refused, and a kubeconfig into
which the user has logged in again meanwhile is seen.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

from mpijob.backends.kubernetes.auth.access import Access, Credential, Plugin
from mpijob.errors import BackendError, MpiJobError

TOKEN_SECONDS = 60.0  # how long a token file's content is believed, as Kubernetes' own clients do


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
        from mpijob.backends.kubernetes.auth import kubeconfig  # after a 401 alone

        access = self._access
        if not access.source or access.plugin or access.token_file:
            return access
        try:
            fresh = kubeconfig.load(path=access.source, context=access.context, environ=self._environ)
        except MpiJobError:  # it is being written, or gone: what we have is all there is
            return access
        return fresh if fresh.server == access.server else access


def _basic(username: str, password: str) -> str:
    import base64

    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
