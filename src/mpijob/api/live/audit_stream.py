"""Copy the audit log of a server to its standard output, with an anchor each hour.

A cluster collects what a pod writes to standard output, so this copy is where the server cannot change it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mpijob.history.audit import audit_log
from mpijob.history.audit.audit_anchor import Anchors

ANCHOR_SECONDS = 3600.0
_writing = threading.Lock()


def write(line: bytes) -> None:
    """Write one whole line to standard output; a closed pipe is ignored."""
    rest = memoryview(line + b"\n")
    # `os.write` may write a part only; the lock keeps lines of several threads whole.
    with _writing, suppress(OSError):
        while rest:
            rest = rest[os.write(1, rest) :]


@contextmanager
def copied(directory: str) -> Iterator[None]:
    """Copy new audit entries while the context is open; with anchors at its start, each hour, and at its end."""
    end, anchors = audit_log.copy_to(write), Anchors(directory, write)
    anchors.write_anchor()
    hourly = asyncio.create_task(_hourly(anchors))
    try:
        yield
    finally:
        hourly.cancel()
        anchors.write_anchor()
        end()


async def _hourly(anchors: Anchors) -> None:
    while True:
        await asyncio.sleep(ANCHOR_SECONDS)
        await asyncio.to_thread(anchors.write_anchor)
