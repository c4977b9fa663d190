"""Runs a credential plugin (client.authentication.k8s.io): aws, gcloud, kubelogin, oc …

The user has chosen it in the kubeconfig. Its stdout is a secret and never quoted; its stderr is, if it fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.auth.access import Access, Plugin, Redacted
from mpijob.errors import BackendError, Unsupported

_APIS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_SECONDS = 60.0
# A plugin may open a browser and wait for the user's login.
_INTERACTIVE_SECONDS = 300.0


class Grant(Redacted, frozen=True):
    """The `status` of an ExecCredential."""

    token: str = ""
    certificate: str = msgspec.field(default="", name="clientCertificateData")
    key: str = msgspec.field(default="", name="clientKeyData")
    until: datetime | None = msgspec.field(default=None, name="expirationTimestamp")

    @property
    def expires(self) -> float | None:
        """The end of the grant in seconds since 1970."""
        return self.until.timestamp() if self.until else None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: Grant | None = None


def ask(plugin: Plugin, access: Access, environ: Mapping[str, str]) -> Grant:
    """Run the plugin and return its credentials; raise Unsupported or BackendError."""
    if plugin.api not in _APIS:
        raise Unsupported(
            f"{_where(plugin, access)} uses version {plugin.api or 'unknown'} of the plugin protocol",
            hint=f"update the plugin, and the kubeconfig to {_APIS[0]}",
        )
    interactive = _interactive(plugin, access)
    output = _run(
        plugin, access, {**environ, **plugin.env, **_exec_info(plugin, access, interactive)}, interactive
    )
    return _read(output, plugin, access)


def _interactive(plugin: Plugin, access: Access) -> bool:
    """Return whether the plugin may ask the user; raise BackendError if it must and cannot."""
    if plugin.interactive == "Never":
        return False
    try:
        is_terminal = sys.stdin.isatty()
    except (AttributeError, ValueError):
        is_terminal = False
    if plugin.interactive == "Always" and not is_terminal:
        raise BackendError(
            f"{_where(plugin, access)} requires an interactive terminal",
            hint=f"log in once in a terminal ({plugin.command}, or kubectl get namespaces), then try again",
        )
    return is_terminal


def _exec_info(plugin: Plugin, access: Access, interactive: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster_info:
        spec["cluster"] = _cluster(plugin, access)
    info = {"apiVersion": plugin.api, "kind": "ExecCredential", "spec": spec}
    return {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}


def _cluster(plugin: Plugin, access: Access) -> dict[str, Any]:
    import base64

    cluster = {
        "server": access.server,
        "tls-server-name": access.tls_server_name,
        "insecure-skip-tls-verify": access.insecure,
        "certificate-authority-data": base64.b64encode(access.ca.encode()).decode(),
        "proxy-url": access.proxy,
        "config": plugin.config,
    }
    return {name: value for name, value in cluster.items() if value}


def _run(plugin: Plugin, access: Access, environ: Mapping[str, str], interactive: bool) -> bytes:
    limit = _INTERACTIVE_SECONDS if interactive else _SECONDS
    try:
        completed = subprocess.run(
            [plugin.command, *plugin.args],
            env=dict(environ),
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # With a user, prompts on stderr must appear at once.
            stderr=None if interactive else subprocess.PIPE,
            timeout=limit,
            check=False,
        )
    except FileNotFoundError:
        hint = plugin.install_hint or f"install {os.path.basename(plugin.command)}, or put it on the PATH"
        raise BackendError(f"{_where(plugin, access)} is not on this machine", hint=hint) from None
    except OSError as error:
        raise BackendError(f"{_where(plugin, access)} does not start: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        # Not chained: the exception contains the output.
        raise BackendError(
            f"{_where(plugin, access)} did not respond within {limit:g} s", hint=access.login_hint
        ) from None
    if completed.returncode:
        lines = (completed.stderr or b"").decode(errors="replace").strip().splitlines()[-3:]
        quoted = ": " + " · ".join(lines) if lines else ""
        raise BackendError(
            f"{_where(plugin, access)} ended with {completed.returncode}{quoted[:600]}",
            hint=access.login_hint,
        )
    return completed.stdout


def _read(output: bytes, plugin: Plugin, access: Access) -> Grant:
    try:
        credential = codec.decode(output, _ExecCredential)
    except msgspec.DecodeError as error:
        raise BackendError(f"{_where(plugin, access)} returned an invalid ExecCredential: {error}") from None
    if credential.api_version != plugin.api:
        raise BackendError(
            f"{_where(plugin, access)} returned {credential.api_version}, expected {plugin.api}",
            hint="set the exec entry's apiVersion in the kubeconfig to the version of the plugin",
        )
    grant = credential.status or Grant()
    if not grant.token and not (grant.certificate and grant.key):
        raise BackendError(
            f"{_where(plugin, access)} returned neither a token nor a certificate with its key",
            hint=access.login_hint,
        )
    return grant


def _where(plugin: Plugin, access: Access) -> str:
    return f"the credential plugin '{plugin.command}' (user '{access.user}' in {access.source})"
