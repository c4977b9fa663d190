"""What belongs to a job and must go with it: its secrets' values, what went along."""

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
    """Put the secrets' values where only this user can read them."""
    _write(home, uid, _SECRETS, values)


def read_secrets(home: Home, uid: str) -> dict[str, str]:
    """Return the secrets' values of a job."""
    return codec.decode(_read(home, uid, _SECRETS), dict[str, str])


def write_connections(home: Home, uid: str, found: dict[str, Connection]) -> None:
    """Put the data connections, which hold keys, where only this user can read them."""
    _write(home, uid, _CONNECTIONS, found)


def read_connections(home: Home, uid: str) -> dict[str, Connection]:
    """Return the data connections of a job that has not ended for good."""
    from mpijob.backends.s3_volumes import Connection

    return codec.decode(_read(home, uid, _CONNECTIONS), dict[str, Connection])


def write_uploaded(home: Home, uid: str, laid: dict[str, Stamp]) -> None:
    """Note the files that went along as they were when the job was given them."""
    _write(home, uid, _UPLOADED, laid)


def read_uploaded(home: Home, uid: str) -> dict[str, Stamp]:
    """Return the files that went along with a job, as they were then."""
    return codec.decode(_read(home, uid, _UPLOADED), dict[str, tuple[int, int]])


def _write(home: Home, uid: str, name: str, values: Mapping[str, object]) -> None:
    if values:
        fd = os.open(home.job(uid) / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(values))


def _read(home: Home, uid: str, name: str) -> bytes:
    try:
        return (home.job(uid) / name).read_bytes()
    except FileNotFoundError:
        return b"{}"


def remove_secrets(home: Home, uid: str) -> None:
    """Remove the secrets' values: the job has ended for good."""
    (home.job(uid) / _CONNECTIONS).unlink(missing_ok=True)
    (home.job(uid) / _SECRETS).unlink(missing_ok=True)
