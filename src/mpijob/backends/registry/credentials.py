"""Registry credentials: the files of docker and podman, and pull secrets of the same format.

The lookup follows containers-auth.json(5) and docker's config.json. Where a login is sent is decided in `client`.
"""

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

# The first one is docker's own key for Docker Hub, the others are written by other tools.
_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io")
_HELPER_SECONDS = 10.0
_MAX_BYTES = 1 << 20


class Login(msgspec.Struct, frozen=True):
    """User and password, or an identity (refresh) token; its repr hides them."""

    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return "Login(…)"

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def credential_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the credential files in order of precedence."""
    if configured := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(configured)
    if configured := environ.get("DOCKER_CONFIG"):
        yield Path(configured) / "config.json"
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    home = Path(environ.get("HOME") or "~").expanduser()
    yield home / ".config" / "containers" / "auth.json"
    yield home / ".docker" / "config.json"


def find_login(
    host: str, path: str, environ: Mapping[str, str], *, auth_file: str = "", helpers: bool = True
) -> Login | None:
    """Return this user's login for a registry; `auth_file` must be readable, default files may be missing."""
    if auth_file:
        return login_from_config(_read(Path(auth_file), required=True), host, path, helpers=helpers)
    for file in credential_files(environ):
        login = login_from_config(_read(file), host, path, helpers=helpers)
        if login is not None:
            return login
    return None


def _read(path: Path, *, required: bool = False) -> Any:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_BYTES))
    except (OSError, msgspec.DecodeError) as error:
        if required:
            raise InvalidJob(
                f"{path} is not a readable credentials file: {error}",
                hint='expected docker\'s JSON format: {"auths": {"registry.example.com": {"auth": "…"}}}',
            ) from error
        return {}


def login_from_secret(secret: Mapping[str, Any], host: str, path: str) -> Login | None:
    data = secret.get("data") or {}
    for key, is_config in ((".dockerconfigjson", True), (".dockercfg", False)):
        try:
            content = msgspec.json.decode(base64.b64decode(data.get(key) or ""))
        except (binascii.Error, ValueError, msgspec.DecodeError):
            continue
        login = login_from_config(content if is_config else {"auths": content}, host, path, helpers=False)
        if login is not None:
            return login
    return None


def login_from_config(config: Any, host: str, path: str = "", *, helpers: bool = True) -> Login | None:
    """Return the login for an image from the content of a config.json; the longest matching key wins."""
    if not isinstance(config, dict):
        return None
    # A file of other tools: every value is checked before it is used.
    auths = config.get("auths")
    for key in _config_keys(host, path):
        entry = auths.get(key) if isinstance(auths, dict) else None
        if isinstance(entry, dict) and (login := _parse_entry(entry)):
            return login
    helper = _helper_name(config, host)
    return _run_helper(helper, host) if helper and helpers else None


def _config_keys(host: str, path: str) -> Iterator[str]:
    if host in _HUB_KEYS:
        yield from _HUB_KEYS
        return
    # podman has logins for parts of a registry.
    parts: Sequence[str] = path.split("/") if path else ()
    for end in range(len(parts), 0, -1):
        yield f"{host}/{'/'.join(parts[:end])}"
    # Older versions of docker wrote URLs.
    yield from (host, f"https://{host}", f"http://{host}", f"https://{host}/v1/", f"https://{host}/v2/")


def _parse_entry(entry: Mapping[str, Any]) -> Login | None:
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


def _helper_name(config: Mapping[str, Any], host: str) -> str:
    helpers = config.get("credHelpers")
    name = (helpers.get(host) if isinstance(helpers, dict) else None) or config.get("credsStore") or ""
    # It becomes part of a program's name, which must not be a path.
    return name if isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum() else ""


def _run_helper(helper: str, host: str) -> Login | None:
    """Run a credential helper as docker does; one that is missing or has no login is skipped."""
    server = _HUB_KEYS[0] if host in _HUB_KEYS else host
    try:
        result = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=server.encode(),
            capture_output=True,
            check=False,
            timeout=_HELPER_SECONDS,
            env=dict(os.environ),
        )
        response = msgspec.json.decode(result.stdout) if result.returncode == 0 else {}
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return None
    if not isinstance(response, dict):
        return None
    user, secret = (str(response.get(key) or "") for key in ("Username", "Secret"))
    # The helper protocol's mark for an identity token.
    if user == "<token>":
        return Login(token=secret)
    return Login(user, secret) if user else None
