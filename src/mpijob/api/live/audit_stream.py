"""The audit of a server as lines of its log: each entry as it is added, and an anchor now and then.

A cluster collects what a pod writes to its standard output, so a second copy is where the page cannot change it.
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
    """Write one whole line to the standard output; nobody who reads it is no reason to stop."""
    rest = memoryview(line + b"\n")
    with _writing, suppress(OSError):
        while rest:
            rest = rest[os.write(1, rest) :]


@contextmanager
def copied(directory: str) -> Iterator[None]:
    """Write what is added to the audit to the standard output as well, with anchors: now, each hour and at the end."""
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
