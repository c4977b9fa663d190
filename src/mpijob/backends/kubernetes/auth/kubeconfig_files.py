"""Kubeconfig files, read and merged as kubectl merges them; `kubeconfig` makes an access of what is found.

The first file that has a cluster, user or context of a name wins, and so does the first
`current-context`. What is wrong is told with its file; what stands in a file is never quoted, since
it may be a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.auth import plain_yaml
from mpijob.backends.kubernetes.auth.access import Redacted
from mpijob.errors import BackendError

T = TypeVar("T")


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """A cluster entry."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[dict[str, Any]] = []


class Variable(Redacted, frozen=True):
    """A variable for a plugin."""

    name: str
    value: str = ""


class Exec(Redacted, frozen=True, rename="camel"):
    """The plugin of a user entry."""

    command: str
    api_version: str = ""
    args: list[str] = []
    env: list[Variable] = []
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


class User(Redacted, frozen=True, rename="kebab"):
    """A user entry."""

    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    act_as: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    auth_provider: dict[str, Any] | None = None
    exec: Exec | None = None


class Context(msgspec.Struct, frozen=True):
    """A context entry."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class Found(msgspec.Struct, frozen=True):
    """One entry, not yet read, and the file that it stands in."""

    entry: Any
    file: str


class Merged(msgspec.Struct, frozen=True):
    """The files as one."""

    files: tuple[str, ...]
    current: str
    clusters: dict[str, Found]
    users: dict[str, Found]
    contexts: dict[str, Found]

    @property
    def place(self) -> str:
        """Where it was read, as KUBECONFIG would say it."""
        return os.pathsep.join(self.files)


def candidates(path: str, environ: Mapping[str, str]) -> list[str]:
    """Return the files that are looked at, whether they exist or not."""
    given = path or environ.get("KUBECONFIG", "")
    if given:
        return [os.path.expanduser(part) for part in given.split(os.pathsep) if part]
    home = environ.get("HOME") or os.path.expanduser("~")
    return [os.path.join(home, ".kube", "config")]


def read(path: str, environ: Mapping[str, str]) -> Merged:
    """Return all that the kubeconfig files say; `path` stands in for KUBECONFIG."""
    files = tuple(name for name in candidates(path, environ) if os.path.exists(name))
    if path and not files:
        raise BackendError(f"no kubeconfig at {path}", hint="name a file that exists, or leave it out")
    configs = {file: _config(file) for file in files}
    current = next((name for config in configs.values() if (name := config.get("current-context"))), "")
    found = Merged(files, str(current), {}, {}, {})
    for file, config in configs.items():
        _take(config, "clusters", "cluster", found.clusters, file)
        _take(config, "users", "user", found.users, file)
        _take(config, "contexts", "context", found.contexts, file)
    return found


def _config(file: str) -> dict[str, Any]:
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not a text"
        raise BackendError(f"cannot read the kubeconfig {file}: {why}") from None
    if not text.strip():
        return {}
    value = _quickly(text)
    value = _parsed(text, file) if value is None else value
    if not isinstance(value, dict):
        raise BackendError(f"the kubeconfig {file} is not a mapping of clusters, users and contexts")
    return value


def _quickly(text: str) -> Any:
    """Return what the text says, or None when it takes a YAML library to read it."""
    if not text.startswith("{"):
        return plain_yaml.read(text)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _parsed(text: str, file: str) -> Any:
    import yaml  # only for what plainyaml leaves

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except yaml.YAMLError as error:  # its text quotes the file, so it is not chained
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise BackendError(f"the kubeconfig {file}{where} is not valid YAML") from None


def _take(config: dict[str, Any], plural: str, name: str, into: dict[str, Found], file: str) -> None:
    here: set[str] = set()
    entries = config.get(plural) or []
    if not isinstance(entries, list):
        raise BackendError(f"the kubeconfig {file}: '{plural}' is not a list")
    for entry in entries:
        called = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(called, str):
            raise BackendError(f"the kubeconfig {file}: an entry of '{plural}' has no name")
        if called in here:
            raise BackendError(f"the kubeconfig {file}: '{called}' stands twice under '{plural}'")
        here.add(called)
        into.setdefault(called, Found(entry.get(name) or {}, file))


def typed(found: Found, shape: type[T], what: str) -> T:
    """Return the entry as its type, or say where it is not of that type."""
    try:
        return codec.convert(_without_nulls(found.entry), shape)
    except msgspec.ValidationError as error:
        raise BackendError(f"the kubeconfig {found.file}, {what}: {error}") from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
