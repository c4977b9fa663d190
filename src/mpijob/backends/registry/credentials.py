"""Who we are at a registry: the files that docker and podman keep, and pull secrets of the same form."""

from __future__ import annotations

import base64
import binascii
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mpijob.errors import InvalidJob

_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io")
_HELPER_SECONDS = 10.0
_LARGEST = 1 << 20


class Login(msgspec.Struct, frozen=True):
    """A user and password, or a token that stands for both; it shows nothing of itself."""

    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return "Login(…)"

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield where logins are kept, the first that names a registry counts."""
    if named := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    if named := environ.get("DOCKER_CONFIG"):
        yield Path(named) / "config.json"
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    home = Path(environ.get("HOME") or "~").expanduser()
    yield home / ".config" / "containers" / "auth.json"
    yield home / ".docker" / "config.json"


def find(
    host: str, path: str, environ: Mapping[str, str], *, auth_file: str = "", helpers: bool = True
) -> Login | None:
    """Return this user's login at a registry; a file that was named must be readable, others may be absent."""
    if auth_file:
        return of_config(_read(Path(auth_file), must=True), host, path, helpers=helpers)
    for file in files(environ):
        found = of_config(_read(file), host, path, helpers=helpers)
        if found is not None:
            return found
    return None


def _read(path: Path, *, must: bool = False) -> Any:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_LARGEST))
    except (OSError, msgspec.DecodeError) as error:
        if must:
            raise InvalidJob(
                f"{path} cannot be read as a file of logins: {error}",
                hint='it is JSON as docker keeps it: {"auths": {"registry.example.com": {"auth": "…"}}}',
            ) from error
        return {}


def of_secret(secret: Mapping[str, Any], host: str, path: str) -> Login | None:
    """Return the login that a pull secret of a cluster holds for a registry."""
    data = secret.get("data") or {}
    for key, whole in ((".dockerconfigjson", True), (".dockercfg", False)):
        try:
            content = msgspec.json.decode(base64.b64decode(data.get(key) or ""))
        except (binascii.Error, ValueError, msgspec.DecodeError):
            continue
        found = of_config(content if whole else {"auths": content}, host, path, helpers=False)
        if found is not None:
            return found
    return None


def of_config(config: Any, host: str, path: str = "", *, helpers: bool = True) -> Login | None:
    """Return the login for an image in the content of a config.json; the longest name that fits counts."""
    if not isinstance(config, dict):
        return None
    auths = config.get("auths")
    for key in _keys(host, path):
        entry = auths.get(key) if isinstance(auths, dict) else None
        if isinstance(entry, dict) and (found := _login(entry)):
            return found
    helper = _helper(config, host)
    return _from_helper(helper, host) if helper and helpers else None


def _keys(host: str, path: str) -> Iterator[str]:
    if host in _HUB_KEYS:
        yield from _HUB_KEYS
        return
    parts: Sequence[str] = path.split("/") if path else ()
    for end in range(len(parts), 0, -1):
        yield f"{host}/{'/'.join(parts[:end])}"
    yield from (host, f"https://{host}", f"http://{host}", f"https://{host}/v1/", f"https://{host}/v2/")


def _login(entry: Mapping[str, Any]) -> Login | None:
    token = entry.get("identitytoken")
    user, password = entry.get("username") or "", entry.get("password") or ""
    if entry.get("auth"):
        try:
            user, _, password = base64.b64decode(str(entry["auth"])).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
    password = str(password).rstrip("\0")
    if isinstance(token, str) and token:
        return Login(str(user), password, token)
    return Login(str(user), password) if user else None


def _helper(config: Mapping[str, Any], host: str) -> str:
    own = config.get("credHelpers")
    named = (own.get(host) if isinstance(own, dict) else None) or config.get("credsStore") or ""
    return named if isinstance(named, str) and named.replace("-", "").replace("_", "").isalnum() else ""


def _from_helper(helper: str, host: str) -> Login | None:
    """Ask a credential helper as docker does; one that is not there or knows nothing is passed over."""
    asked = _HUB_KEYS[0] if host in _HUB_KEYS else host
    try:
        done = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=asked.encode(),
            capture_output=True,
            check=False,
            timeout=_HELPER_SECONDS,
            env=dict(os.environ),
        )
        told = msgspec.json.decode(done.stdout) if done.returncode == 0 else {}
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return None
    user, secret = (
        (str(told.get(key) or "") for key in ("Username", "Secret")) if isinstance(told, dict) else ("", "")
    )
    if user == "<token>":
        return Login(token=secret)
    return Login(user, secret) if user else None
