"""The operator: reconciles the `MPIJobPlatform`.

Changes of the resource only wake the loop, which compares everything with the spec and takes one step
(`reconcile`). So the resource stores only its status, has no finalizer, and a lost event costs at most a
minute. With several replicas, the holder of the Lease is active. Jobs are handled by the controller
(`backends/kubernetes/controller`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.auth import kubeconfig
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.informer import Cache, ListWatch
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.controller.leader_election import Election
from mpijob.client.services.shutdown import until_ended
from mpijob.cluster import crds
from mpijob.cluster.apply import ObjectClient, with_component
from mpijob.cluster.reconcile import HEALTHY_STATES, PlatformReconciler
from mpijob.cluster.status import invalid_status, status
from mpijob.errors import MpiJobError
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.platform.governance import GROUP, SINGLETON, VERSION, Platform, PlatformStatus, platform_of
from mpijob.serving.service import HealthServer, Metric

PLATFORM = Kind(f"{GROUP}/{VERSION}", "MPIJobPlatform", "mpijobplatforms", namespaced=False)
LEASE = "mpijob-operator"
_RESYNC_SECONDS = 60.0
_RETRY_SECONDS = 3.0
_OWNERS_INTERVAL_SECONDS = 5.0
_STUCK_AFTER_SECONDS = 300.0
_log = logging.getLogger(__name__)


class Operator:
    """Reconciles the platform when woken, and periodically."""

    def __init__(self, api: Api, election: Election, namespace: str, deploy: Path) -> None:
        self._api = api
        self._election = election
        self._reconciler = PlatformReconciler(api, namespace, deploy)
        self._wake_event = threading.Event()
        self._stop = threading.Event()
        self._platform: Platform | None = None
        self.heartbeat = time.monotonic()
        self.reconciliations = 0

    def wake(self) -> None:
        self._wake_event.set()

    def stop(self) -> None:
        self._stop.set()
        self._wake_event.set()

    def run(self) -> None:
        with self._election:
            due = 0.0
            while not self._stop.is_set():
                self.heartbeat = time.monotonic()
                if self._election.leads and (self.heartbeat >= due or self._wake_event.is_set()):
                    # Before the step: a change during it wakes the loop again.
                    self._wake_event.clear()
                    due = self.heartbeat + self._guarded(self.reconcile)
                elif self._election.leads:
                    self._guarded(self.update_owners)
                self._wake_event.wait(min(max(due - time.monotonic(), 0.0), _OWNERS_INTERVAL_SECONDS) or 1.0)

    def _guarded(self, step: Callable[[], float]) -> float:
        try:
            return step()
        except MpiJobError as error:
            _log.warning("reconciliation failed, retrying: %s", error.message)
        except Exception:
            # The outermost handler: the next reconciliation may succeed.
            _log.exception("reconciliation failed")
        return _RETRY_SECONDS

    def reconcile(self) -> float:
        """Take one step; return the seconds until the next one is due."""
        self.reconciliations += 1
        resource = self._api.find(PLATFORM.path("", SINGLETON))
        if resource is None or resource["metadata"].get("deletionTimestamp"):
            # Without the resource, everything stays as it is.
            return _RESYNC_SECONDS
        old_status = _parse_status(resource)
        generation = int(resource["metadata"].get("generation", 0))
        try:
            platform = platform_of(resource)
        except msgspec.ValidationError as error:
            self._write_status(resource, old_status, invalid_status(old_status, str(error), generation))
            return _RESYNC_SECONDS
        new_status = status(old_status, self._reconciler.reconcile(platform), generation)
        self._write_status(resource, old_status, new_status)
        self._platform = platform
        return (
            _RESYNC_SECONDS
            if all(component.state in HEALTHY_STATES for component in new_status.components)
            else _RETRY_SECONDS
        )

    def update_owners(self) -> float:
        """Update the users that the controller may impersonate."""
        # Jobs come and go more often than the platform changes, so this has its own interval.
        if self._platform is not None:
            self._reconciler.update_owners(self._platform)
        return _OWNERS_INTERVAL_SECONDS

    def _write_status(
        self, platform: Document, old_status: PlatformStatus, new_status: PlatformStatus
    ) -> None:
        if old_status == new_status:
            return
        body = {"metadata": {"uid": platform["metadata"]["uid"]}, "status": msgspec.to_builtins(new_status)}
        self._api.patch(PLATFORM.path("", SINGLETON, "status"), body)


def _parse_status(platform: Document) -> PlatformStatus:
    try:
        return codec.convert(platform.get("status") or {}, PlatformStatus)
    except msgspec.ValidationError:
        return PlatformStatus()


def serve(namespace: str, deploy: Path, *, health_port: int | None = None) -> None:
    """Run the operator of the cluster of the kubeconfig, or of this pod, until stopped."""
    stop = until_ended()
    access = kubeconfig.load()
    api = Api(access)
    namespace_used = namespace or access.namespace or "default"
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    _apply_crds(api)
    # A connection of its own with a short timeout: a slow request must not cost the Lease.
    election = Election(Api(access, timeout=4.0), namespace_used, LEASE, identity)
    operator = Operator(api, election, namespace_used, deploy)
    loop = threading.Thread(target=operator.run, daemon=True, name="platform")
    loop.start()
    health = contextlib.nullcontext() if health_port is None else _health(operator, health_port)
    try:
        with health, wake_on_change(api, PLATFORM.path(), operator.wake):
            stop.wait()
    finally:
        operator.stop()
        loop.join(5.0)


@contextlib.contextmanager
def wake_on_change(api: Api, path: str, wake: Callable[[], None]) -> Iterator[None]:
    """Call `wake` at each change of a collection."""
    with Cache(api, {"platform": ListWatch(path)}) as platforms:
        platforms.subscribe(lambda *_: wake())
        yield


def _health(operator: Operator, port: int) -> HealthServer:
    reconciliations = Metric(
        "Reconciliations of the platform.", lambda: operator.reconciliations, counter=True
    )
    return HealthServer(
        port,
        alive=lambda: time.monotonic() - operator.heartbeat < _STUCK_AFTER_SECONDS,
        ready=lambda: True,
        metrics={"mpijob_operator_looks_total": reconciliations},
    )


def _apply_crds(api: Api) -> None:
    """Apply our CRDs, without which there is nothing to watch."""
    objects = ObjectClient(api)
    for document in crds.documents():
        objects.apply(with_component(document, "crds"))
