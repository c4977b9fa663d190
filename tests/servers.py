"""Real servers of tests: a port that is free, and a process that ends with the test."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def free_port() -> int:
    """Return a port of this machine that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def process(*argv: str | Path, log: Path, ends_in: float = 10.0, **more: Any) -> Iterator[None]:
    """Run a server; what it says goes to a file. It must end within some seconds after it is told to."""
    with log.open("wb") as file:
        started = subprocess.Popen(argv, stdout=file, stderr=file, **more)
        try:
            yield
        finally:
            started.terminate()
            started.wait(ends_in)
