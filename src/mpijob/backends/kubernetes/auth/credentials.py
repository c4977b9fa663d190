"""Keeps the credentials of an `Access` fresh.

Token files are read again, plugins run again when their credentials expired or were rejected, and after a 401
the kubeconfig is read again, in case the user has logged in meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

from mpijob.backends.kubernetes.auth.access import Access, Credential, Plugin
from mpijob.errors import BackendError, MpiJobError

# client-go caches a token file for this time, too; the kubelet rotates it long before it expires.
TOKEN_SECONDS = 60.0


class Credentials:
    """The current credentials of an access; safe to use from several threads."""

    def __init__(self, access: Access, environ: Mapping[str, str] | None = None) -> None:
        self._access = access
        self._environ = os.environ if environ is None else environ
        self._lock = threading.Lock()
        self._proof: Credential | None = None
        self._read_at = 0.0

    def current(self) -> Credential:
        """Return the credentials to send now; runs the plugin if its last ones have expired."""
        with self._lock:
            if self._proof is None or self._outdated(self._proof):
                self._proof = self._build()
            return self._proof

    def renew(self, refused: Credential) -> bool:
        """Get other credentials after a 401; return whether there are other ones to try."""
        with self._lock:
            if self._proof is not None and self._proof is not refused:
                # Another thread has renewed them meanwhile.
                return True
            self._access = self._reload()
            self._proof = self._build()
            return bool(self._access.plugin) or self._proof != refused

    def _outdated(self, proof: Credential) -> bool:
        if self._access.token_file:
            return time.monotonic() - self._read_at > TOKEN_SECONDS
        return proof.expires is not None and time.time() >= proof.expires

    def _build(self) -> Credential:
        access = self._access
        if access.plugin:
            return self._run_plugin(access.plugin)
        if token := self._token():
            return Credential(f"Bearer {token}", access.certificate, access.key)
        if access.username:
            return Credential(_basic(access.username, access.password), access.certificate, access.key)
        return Credential("", access.certificate, access.key)

    def _run_plugin(self, plugin: Plugin) -> Credential:
        # Imported late for a quick start: few users have a plugin.
        from mpijob.backends.kubernetes.auth import exec_plugin

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

    def _reload(self) -> Access:
        """Return the access as the kubeconfig has it now: `oc login` writes a new token there."""
        # Imported late: needed after a 401 only.
        from mpijob.backends.kubernetes.auth import kubeconfig

        access = self._access
        if not access.source or access.plugin or access.token_file:
            return access
        try:
            fresh = kubeconfig.load(path=access.source, context=access.context, environ=self._environ)
        except MpiJobError:
            # The file is being written, or was deleted.
            return access
        # A context that was changed to another cluster meanwhile must not redirect a running command.
        return fresh if fresh.server == access.server else access


def _basic(username: str, password: str) -> str:
    import base64

    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
