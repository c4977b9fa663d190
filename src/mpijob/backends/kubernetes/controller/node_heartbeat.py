"""Noticing a lost node before the cluster does: its kubelet renews a Lease every ten seconds.

The cluster calls a node lost after most of a minute; two renewals that did not come are enough to tell. Every
kubelet falls silent when the API server is away, so nothing is told until it has answered for as long.
"""

from __future__ import annotations

import threading
import time

from mpijob.backends.kubernetes.client.informer import ListWatch
from mpijob.backends.kubernetes.client.watch import Change
from mpijob.backends.kubernetes.controller.leader_election import LEASE
from mpijob.backends.kubernetes.controller.work_queue import bare
from mpijob.formats.kubernetes.metadata.well_known import Document

SOURCE = "node leases"
SILENT_SECONDS = 22.0
_NAMESPACE = "kube-node-lease"


def source() -> ListWatch:
    """Return what is to be watched."""
    return ListWatch(LEASE.path(_NAMESPACE), trim=_outline)


class NodeHeartbeats:
    """Keeps when each node was last heard."""

    def __init__(self, silent_seconds: float = SILENT_SECONDS) -> None:
        self._silent_seconds = silent_seconds
        self._heard: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def heard(self, source: str, change: Change) -> None:
        """Take note of a change of a Lease; a listener of the cache."""
        if source != SOURCE or change.kind in ("RESET", "BOOKMARK"):
            return
        name = change.object["metadata"]["name"]
        with self._lock:
            if change.kind == "DELETED":
                self._heard.pop(name, None)
            elif self._heard.get(name, ("", 0.0))[0] != (renewed := change.object.get("renewed", "")):
                self._heard[name] = (renewed, time.monotonic())

    def silent(self, well_seconds: float) -> dict[str, str]:
        """Return the silent nodes and their last words; none unless the API server has answered for as long."""
        if well_seconds < self._silent_seconds:
            return {}
        now = time.monotonic()
        with self._lock:
            known = dict(self._heard)
        return {name: said for name, (said, when) in known.items() if now - when >= self._silent_seconds}


def _outline(lease: Document) -> Document:
    return bare(lease) | {"renewed": (lease.get("spec") or {}).get("renewTime", "")}
