"""Anchors: where a chain has come to, told to a place that whoever writes the chain cannot change afterwards.

On one machine that is the system's log, which is root's: once a day, before its first line. A server says it in its own
log, which the cluster collects. `mpijob audit verify --anchor NUMBER:HASH` compares the chain with one of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from mpijob.history.audit.chain import Head, tip
from mpijob.model.status.audit import DOMAIN, stamp

IDENT = "mpijob"


class Anchor(msgspec.Struct, frozen=True, rename={"api_version": "apiVersion"}):
    """One anchor as a line of a log."""

    kind: str
    api_version: str
    time: str
    directory: str
    head: str


def sentence(directory: str, head: Head) -> str:
    """Return an anchor as the system's log has it."""
    return f"audit anchor {head} {directory}"


def tell_system(directory: str, head: Head) -> None:
    """Tell the system's log; where there is none (in a container), nobody hears it."""
    import syslog

    syslog.openlog(IDENT, syslog.LOG_PID, syslog.LOG_AUTH)
    syslog.syslog(syslog.LOG_NOTICE, sentence(directory, head))


class Anchors:
    """Tells where a chain is whenever it is asked to and something was added since."""

    def __init__(self, directory: str, write: Callable[[bytes], None]) -> None:
        self._directory, self._write = directory, write
        self._told = Head()

    def tell(self) -> None:
        """Write an anchor, unless it would be the last one again."""
        try:
            head = tip(self._directory)[0] if os.path.isdir(self._directory) else Head()
        except OSError:
            return  # what cannot be read is told by whoever writes
        if head not in (Head(), self._told):
            self._told = head
            now = stamp(time.time())
            self._write(
                msgspec.json.encode(
                    Anchor("AuditAnchor", f"{DOMAIN}/v1alpha1", now, self._directory, str(head))
                )
            )
