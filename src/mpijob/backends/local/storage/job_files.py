"""Small files in a job's directory: values of secrets, data connections, the list of uploaded code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from mpijob import codec
from mpijob.backends.local.storage.paths import Home

if TYPE_CHECKING:
    from mpijob.backends.code_upload import Stamp
    from mpijob.backends.s3_volumes import Connection

_SECRETS, _CONNECTIONS, _UPLOADED = "secrets.json", "connections.json", "along.json"


def write_secrets(home: Home, uid: str, values: dict[str, str]) -> None:
    _write(home, uid, _SECRETS, values)


def read_secrets(home: Home, uid: str) -> dict[str, str]:
    """Return the values of a job's secrets by variable, {} after its end."""
    return codec.decode(_read(home, uid, _SECRETS), dict[str, str])


def write_connections(home: Home, uid: str, found: dict[str, Connection]) -> None:
    _write(home, uid, _CONNECTIONS, found)


def read_connections(home: Home, uid: str) -> dict[str, Connection]:
    """Return the data connections of a job, {} after its end."""
    from mpijob.backends.s3_volumes import Connection

    return codec.decode(_read(home, uid, _CONNECTIONS), dict[str, Connection])


def write_uploaded(home: Home, uid: str, files: dict[str, Stamp]) -> None:
    """Store which files were uploaded with the job, so that its own outputs can be told apart."""
    _write(home, uid, _UPLOADED, files)


def read_uploaded(home: Home, uid: str) -> dict[str, Stamp]:
    return codec.decode(_read(home, uid, _UPLOADED), dict[str, tuple[int, int]])


def _write(home: Home, uid: str, name: str, values: Mapping[str, object]) -> None:
    if values:
        # With the mode from the start: between creation and `chmod` another user could open the file.
        fd = os.open(home.job(uid) / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(values))


def _read(home: Home, uid: str, name: str) -> bytes:
    try:
        return (home.job(uid) / name).read_bytes()
    except FileNotFoundError:
        return b"{}"


def remove_secrets(home: Home, uid: str) -> None:
    """Remove the values of secrets and the data connections; for a job without a next attempt."""
    (home.job(uid) / _CONNECTIONS).unlink(missing_ok=True)
    (home.job(uid) / _SECRETS).unlink(missing_ok=True)
