"""Asks a credential plugin (client.authentication.k8s.io) who we are: aws, gcloud, kubelogin, oc …

The plugin is the user's own choice, named in their kubeconfig. What it prints is a secret and is
never quoted; what it complains about on stderr is, when it fails.
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
_SECONDS_WITH_PEOPLE = 300.0


class Grant(Redacted, frozen=True):
    """What a plugin handed out."""

    token: str = ""
    certificate: str = msgspec.field(default="", name="clientCertificateData")
    key: str = msgspec.field(default="", name="clientKeyData")
    until: datetime | None = msgspec.field(default=None, name="expirationTimestamp")

    @property
    def expires(self) -> float | None:
        """When it ends, in seconds since 1970."""
        return self.until.timestamp() if self.until else None


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: Grant | None = None


def ask(plugin: Plugin, access: Access, environ: Mapping[str, str]) -> Grant:
    """Run the plugin and return what it grants."""
    if plugin.api not in _APIS:
        raise Unsupported(
            f"{_where(plugin, access)} uses version {plugin.api or 'unknown'} of the plugin protocol",
            hint=f"update the plugin, and the kubeconfig to {_APIS[0]}",
        )
    people = _interactive(plugin, access)
    output = _run(plugin, access, {**environ, **plugin.env, **_told(plugin, access, people)}, people)
    return _read(output, plugin, access)


def _interactive(plugin: Plugin, access: Access) -> bool:
    """Return whether the plugin may talk with somebody."""
    if plugin.interactive == "Never":
        return False
    try:
        somebody = sys.stdin.isatty()
    except (AttributeError, ValueError):
        somebody = False
    if plugin.interactive == "Always" and not somebody:
        raise BackendError(
            f"{_where(plugin, access)} requires an interactive terminal",
            hint=f"log in once in a terminal ({plugin.command}, or kubectl get namespaces), then try again",
        )
    return somebody


def _told(plugin: Plugin, access: Access, people: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": people}
    if plugin.cluster_info:
        spec["cluster"] = _cluster(plugin, access)
    info = {"apiVersion": plugin.api, "kind": "ExecCredential", "spec": spec}
    return {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}


def _cluster(plugin: Plugin, access: Access) -> dict[str, Any]:
    import base64

    told = {
        "server": access.server,
        "tls-server-name": access.tls_server_name,
        "insecure-skip-tls-verify": access.insecure,
        "certificate-authority-data": base64.b64encode(access.ca.encode()).decode(),
        "proxy-url": access.proxy,
        "config": plugin.config,
    }
    return {name: value for name, value in told.items() if value}


def _run(plugin: Plugin, access: Access, environ: Mapping[str, str], people: bool) -> bytes:
    limit = _SECONDS_WITH_PEOPLE if people else _SECONDS
    try:
        done = subprocess.run(
            [plugin.command, *plugin.args],
            env=dict(environ),
            stdin=None if people else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if people else subprocess.PIPE,
            timeout=limit,
            check=False,
        )
    except FileNotFoundError:
        hint = plugin.install_hint or f"install {os.path.basename(plugin.command)}, or put it on the PATH"
        raise BackendError(f"{_where(plugin, access)} is not on this machine", hint=hint) from None
    except OSError as error:
        raise BackendError(f"{_where(plugin, access)} does not start: {error.strerror}") from None
    except subprocess.TimeoutExpired:  # it carries what was printed: not to be chained
        raise BackendError(
            f"{_where(plugin, access)} did not respond within {limit:g} s", hint=access.login_hint
        ) from None
    if done.returncode:
        said = (done.stderr or b"").decode(errors="replace").strip().splitlines()[-3:]
        told = ": " + " · ".join(said) if said else ""
        raise BackendError(
            f"{_where(plugin, access)} ended with {done.returncode}{told[:600]}", hint=access.login_hint
        )
    return done.stdout


def _read(output: bytes, plugin: Plugin, access: Access) -> Grant:
    try:
        answer = codec.decode(output, _Answer)
    except msgspec.DecodeError as error:
        raise BackendError(f"{_where(plugin, access)} returned an invalid ExecCredential: {error}") from None
    if answer.api_version != plugin.api:
        raise BackendError(
            f"{_where(plugin, access)} returned {answer.api_version}, expected {plugin.api}",
            hint="set the exec entry's apiVersion in the kubeconfig to the version of the plugin",
        )
    grant = answer.status or Grant()
    if not grant.token and not (grant.certificate and grant.key):
        raise BackendError(
            f"{_where(plugin, access)} returned neither a token nor a certificate with its key",
            hint=access.login_hint,
        )
    return grant


def _where(plugin: Plugin, access: Access) -> str:
    return f"the credential plugin '{plugin.command}' (user '{access.user}' in {access.source})"
