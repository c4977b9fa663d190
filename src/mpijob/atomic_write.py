"""Replace a file atomically: readers find either the old content or the new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write(path: str | Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file through a temporary one in the same directory; on an error the old file stays, unchanged."""
    place, name = os.path.split(path)
    fresh = os.path.join(place, f".{name}.{os.urandom(6).hex()}")
    # O_EXCL refuses a symbolic link that another user prepared at this name.
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            # The mode of `open` is masked by the umask.
            os.fchmod(handle, mode)
            file.write(content)
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
