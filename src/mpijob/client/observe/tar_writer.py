"""Writing a support bundle's archive: plain names, one order, one date, and nobody else may read it."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

from mpijob.errors import BackendError, Conflict

_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


def plain(name: str) -> str:
    """Return a name that is safe as a file's on any system."""
    return _PLAIN.sub("_", name).lstrip(".-") or "job"


def refuse_existing(path: Path) -> None:
    """Refuse to write over a file: a bundle may be all that is left of a job."""
    if os.path.lexists(path):
        raise Conflict(f"{path} exists already", hint="name another file with -O, or remove it")


def write(path: Path, folder: str, files: Mapping[str, bytes], moment: int) -> int:
    """Write the files, by name, into a new archive; return its size."""
    refuse_existing(path)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BackendError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(fd, "wb") as raw:
            _pack(raw, folder, files, moment)
        return path.stat().st_size
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise BackendError(f"cannot write {path}: {error.strerror}") from error


def _pack(raw: io.BufferedWriter, folder: str, files: Mapping[str, bytes], moment: int) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, moment
            archive.addfile(entry, io.BytesIO(data))
