"""One of several controllers acts: the holder of a Lease, renewed every few seconds.

Another takes over when it has not seen the Lease move for its whole duration, counted by its own clock; so
clocks need not agree. Whoever cannot renew stops acting before anybody else may begin. A killed holder loses
at most that duration, one that ends in peace gives the Lease back.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from datetime import UTC, datetime

from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.formats.kubernetes.metadata.well_known import Document

LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
_log = logging.getLogger(__name__)


class Election:
    """Takes part in the election that a Lease decides; `leads` says whether this process may act now."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_seconds: float = 15.0,
        renew_seconds: float = 3.0,
    ) -> None:
        self._api = api
        self._namespace, self._name, self._identity = namespace, name, identity
        self._lease_seconds, self._renew_seconds = lease_seconds, renew_seconds
        self._until = 0.0  # monotonic; before that nobody else begins
        self._seen: tuple[str, float] = ("", 0.0)  # the Lease's version, and when it was first seen
        self._well_since: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True, name="election")

    def __enter__(self) -> Election:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5.0)
        with contextlib.suppress(ApiError):
            self._give_back()

    @property
    def leads(self) -> bool:
        """Whether this process holds the Lease, for sure."""
        return time.monotonic() < self._until

    @property
    def well_seconds(self) -> float:
        """For how long the API server has answered every renewal."""
        since = self._well_since
        return 0.0 if since is None else time.monotonic() - since

    def _go_on(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._renew_or_wait(began)
            except ApiError as error:
                self._well_since = None
                _log.debug("the lease could not be renewed: %s", error.message)
            else:
                self._well_since = self._well_since or began
            self._stop.wait(max(0.1, self._renew_seconds - (time.monotonic() - began)))

    def _renew_or_wait(self, began: float) -> None:
        held = self._api.find(LEASE.path(self._namespace, self._name))
        if held is None:
            self._api.create(LEASE.path(self._namespace), self._document())
        elif not self._may_take(held, began):
            return
        else:
            guard = {"uid": held["metadata"]["uid"], "resourceVersion": held["metadata"]["resourceVersion"]}
            body = {"metadata": guard, "spec": self._spec(held)}
            try:
                self._api.patch(LEASE.path(self._namespace, self._name), body)
            except ApiError as error:
                if error.status == 409:  # another was quicker
                    return
                raise
        # One renewal less than the lease: whoever waits for it has surely waited longer.
        self._until = began + self._lease_seconds - self._renew_seconds

    def _may_take(self, held: Document, now: float) -> bool:
        spec, version = held.get("spec") or {}, held["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, now)
        holder = spec.get("holderIdentity") or ""
        return holder in ("", self._identity) or now - self._seen[1] > self._lease_seconds

    def _document(self) -> Document:
        return {
            "apiVersion": LEASE.api,
            "kind": LEASE.name,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._spec(None),
        }

    def _spec(self, held: Document | None) -> Document:
        before = (held or {}).get("spec") or {}
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        same = before.get("holderIdentity") == self._identity
        changes = int(before.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._lease_seconds),
            "renewTime": stamp,
            "acquireTime": before.get("acquireTime") if same else stamp,
            "leaseTransitions": changes if same or held is None else changes + 1,
        }

    def _give_back(self) -> None:
        self._until = 0.0
        held = self._api.find(LEASE.path(self._namespace, self._name))
        if held is not None and (held.get("spec") or {}).get("holderIdentity") == self._identity:
            guard = {"resourceVersion": held["metadata"]["resourceVersion"]}
            body = {"metadata": guard, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
            self._api.patch(LEASE.path(self._namespace, self._name), body)
