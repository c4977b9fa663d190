"""What belongs to a job and must go with it: its secrets' values, its temporary directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.local.paths import Home

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.buckets import Connection


def temporary(uid: str) -> Path:
    """Return the job's own temporary directory; short, because sockets are made there (108 bytes at most)."""
    from pathlib import Path  # a list needs none: start-up is a feature

    return Path("/tmp") / f"mpijob-{uid[:12]}"  # noqa: S108 - of mode 0700, and the same for every caller


def write_secrets(home: Home, uid: str, values: dict[str, str]) -> None:
    """Put the secrets' values where only this user can read them."""
    if values:
        fd = os.open(home.job(uid) / "secrets.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(values))


def read_secrets(home: Home, uid: str) -> dict[str, str]:
    """Return the secrets' values of a job."""
    try:
        return msgspec.json.decode((home.job(uid) / "secrets.json").read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}


def write_connections(home: Home, uid: str, found: dict[str, Connection]) -> None:
    """Put the data connections, which hold keys, where only this user can read them."""
    if found:
        fd = os.open(home.job(uid) / "connections.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(found))


def read_connections(home: Home, uid: str) -> dict[str, Connection]:
    """Return the data connections of a job that has not ended for good."""
    from mpijob.backends.buckets import Connection

    try:
        written = (home.job(uid) / "connections.json").read_bytes()
    except FileNotFoundError:
        return {}
    return msgspec.json.decode(written, type=dict[str, Connection])


def forget_secrets(home: Home, uid: str) -> None:
    """Remove the secrets' values: the job has ended for good."""
    (home.job(uid) / "connections.json").unlink(missing_ok=True)
    (home.job(uid) / "secrets.json").unlink(missing_ok=True)
