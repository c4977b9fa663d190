"""Anchors: the head of an audit chain, copied to a place that the writer of the chain cannot change later.

On one machine that is the system log, owned by root: once a day, before the day's first line. A server writes
it to its own log, which the cluster collects. `mpijob audit verify --anchor NUMBER:HASH` compares the chain
with an anchor.
"""

from __future__ import annotations

import syslog
import time
from collections.abc import Callable

import msgspec

from mpijob.history.audit.chain import Head, read_head
from mpijob.model.status.audit import DOMAIN, stamp

IDENT = "mpijob"


class Anchor(msgspec.Struct, frozen=True, rename={"api_version": "apiVersion"}):
    """One anchor as a line of a log."""

    kind: str
    api_version: str
    time: str
    directory: str
    head: str


def format_anchor(directory: str, head: Head) -> str:
    return f"audit anchor {head} {directory}"


def write_syslog(directory: str, head: Head) -> None:
    """Write an anchor to the system log; in a container without one it is lost."""
    syslog.openlog(IDENT, syslog.LOG_PID, syslog.LOG_AUTH)
    syslog.syslog(syslog.LOG_NOTICE, format_anchor(directory, head))


class Anchors:
    """Writes the head of a chain when asked to, if entries were added since the last time."""

    def __init__(self, directory: str, write: Callable[[bytes], None]) -> None:
        self._directory, self._write = directory, write
        self._last = Head()

    def write_anchor(self) -> None:
        """Write an anchor unless the head is unchanged."""
        try:
            head = read_head(self._directory)[0]
        except OSError:
            # Writing an entry reports a directory that cannot be read.
            return
        if head not in (Head(), self._last):
            self._last = head
            now = stamp(time.time())
            self._write(
                msgspec.json.encode(
                    Anchor("AuditAnchor", f"{DOMAIN}/v1alpha1", now, self._directory, str(head))
                )
            )
