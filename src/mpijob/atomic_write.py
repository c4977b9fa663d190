"""Writing a file wholly or not at all: whoever reads it meanwhile finds what was there before."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write(path: str | Path, content: bytes, mode: int = 0o600) -> None:
    """Put a file in its place at once, never through somebody else's link; nothing stays of one that fails."""
    place, name = os.path.split(path)
    fresh = os.path.join(place, f".{name}.{os.urandom(6).hex()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(content)
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
