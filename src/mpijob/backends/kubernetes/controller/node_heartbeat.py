"""Detects a lost node before the cluster does, from the Lease that its kubelet renews every ten seconds.

The node controller waits 40 s or more (node-monitor-grace-period).
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
# Two missed renewals.
SILENT_SECONDS = 22.0
_NAMESPACE = "kube-node-lease"


def source() -> ListWatch:
    return ListWatch(LEASE.path(_NAMESPACE), trim=_outline)


class NodeHeartbeats:
    """When each node last renewed its Lease."""

    def __init__(self, silent_seconds: float = SILENT_SECONDS) -> None:
        self._silent_seconds = silent_seconds
        self._renewals: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def on_change(self, source: str, change: Change) -> None:
        """Store a renewal; a listener of the cache."""
        if source != SOURCE or change.kind in ("RESET", "BOOKMARK"):
            return
        name = change.object["metadata"]["name"]
        with self._lock:
            if change.kind == "DELETED":
                self._renewals.pop(name, None)
            elif self._renewals.get(name, ("", 0.0))[0] != (renewed := change.object.get("renewed", "")):
                self._renewals[name] = (renewed, time.monotonic())

    def silent(self, well_seconds: float) -> dict[str, str]:
        """Return the silent nodes with their last renewal; `well_seconds`: since when the API server responds."""
        # When the API server was away, no kubelet could renew.
        if well_seconds < self._silent_seconds:
            return {}
        # By the time of arrival: a node's clock may be wrong.
        now = time.monotonic()
        with self._lock:
            known = dict(self._renewals)
        return {
            name: renewed for name, (renewed, when) in known.items() if now - when >= self._silent_seconds
        }


def _outline(lease: Document) -> Document:
    return bare(lease) | {"renewed": (lease.get("spec") or {}).get("renewTime", "")}
