"""What the user or administrator has set, read once and handed down.

Environment variables win over the settings file (`$XDG_CONFIG_HOME/mpijob/settings.toml`), which
wins over the defaults here. Nobody else in the package reads `MPIJOB_*` variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from mpijob.errors import InvalidJob


class QuotaSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hard limits of one namespace on the local engine."""

    cpu: float | None = None
    memory: str | None = None
    gpu: int | None = None
    jobs: int | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting with its default."""

    home: str = ""
    engine: str = "local"
    namespace: str = "default"
    max_workers: int = 100
    quota_request_url: str = ""
    quotas: dict[str, QuotaSetting] = {}
    cores: float | None = None
    memory: str | None = None
    gpus: int | None = None
    oversubscribe: bool = True
    isolation: str = "auto"
    mpi_directories: dict[str, str] = {}
    templates: str = ""


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this user; a settings file that cannot be read is an error with its place."""
    environ = os.environ if environ is None else environ
    path = config_path(environ)
    values = _from_file(path)
    for field in ("home", "engine", "namespace", "isolation", "memory", "templates"):
        if text := environ.get(f"MPIJOB_{field.upper()}"):
            values[field] = text
    for field in ("cores", "gpus", "max_workers"):
        if text := environ.get(f"MPIJOB_{field.upper()}"):
            values[field] = text
    values.setdefault("home", str(_default_home(environ)))
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidJob(f"settings in {path} or MPIJOB_* variables: {error}") from error


def config_path(environ: Mapping[str, str]) -> Path:
    """Return where the settings file is looked for."""
    if path := environ.get("MPIJOB_SETTINGS"):
        return Path(path)
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(_user_home(environ), ".config")
    return Path(base) / "mpijob" / "settings.toml"


def _from_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InvalidJob(f"settings file {path}: {error.strerror}") from error
    import tomllib  # read only when there is a file: start-up is a feature

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidJob(f"settings file {path}: {error}") from error


def _default_home(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME") or os.path.join(_user_home(environ), ".local", "state")
    return Path(base) / "mpijob"


def _user_home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")
