"""Leader election: of several controllers, the holder of a Lease acts and renews it every few seconds.

A killed holder is replaced after the lease duration, one that ends normally releases the Lease.
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
    """Takes part in the election that a Lease decides; `leads` is whether this process may act now."""

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
        # Monotonic time until which no other process can become the leader.
        self._until = 0.0
        # The Lease's version, and when this process first saw it.
        self._seen: tuple[str, float] = ("", 0.0)
        self._well_since: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_forever, daemon=True, name="election")

    def __enter__(self) -> Election:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5.0)
        with contextlib.suppress(ApiError):
            self._release()

    @property
    def leads(self) -> bool:
        """Whether this process certainly holds the Lease."""
        return time.monotonic() < self._until

    @property
    def well_seconds(self) -> float:
        """For how long the API server has responded to every renewal."""
        since = self._well_since
        return 0.0 if since is None else time.monotonic() - since

    def _renew_forever(self) -> None:
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
            # The API server rejects the patch if another candidate has changed the Lease since.
            guard = {"uid": held["metadata"]["uid"], "resourceVersion": held["metadata"]["resourceVersion"]}
            body = {"metadata": guard, "spec": self._spec(held)}
            try:
                self._api.patch(LEASE.path(self._namespace, self._name), body)
            except ApiError as error:
                # Another candidate was quicker.
                if error.status == 409:
                    return
                raise
        # From before the request, and shorter than the lease by one renewal: this process stops acting before
        # another, which counts from when it saw the Lease change, may begin.
        self._until = began + self._lease_seconds - self._renew_seconds

    def _may_take(self, held: Document, now: float) -> bool:
        spec, version = held.get("spec") or {}, held["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, now)
        holder = spec.get("holderIdentity") or ""
        # Like client-go: by the time since the version changed here, so that clocks need not agree.
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

    def _release(self) -> None:
        self._until = 0.0
        held = self._api.find(LEASE.path(self._namespace, self._name))
        if held is not None and (held.get("spec") or {}).get("holderIdentity") == self._identity:
            guard = {"resourceVersion": held["metadata"]["resourceVersion"]}
            body = {"metadata": guard, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
            self._api.patch(LEASE.path(self._namespace, self._name), body)
