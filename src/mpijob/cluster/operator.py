"""The operator: a process that keeps the platform as the `MPIJobPlatform` says.

Changes of the resource only wake the loop here, which looks at everything and takes one step (`reconcile`). So
nothing is stored in the resource but its status, nothing holds its removal, and a lost event costs a minute at
most. Of several operators the holder of a Lease acts.
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
from mpijob.cluster.apply import Objects, marked
from mpijob.cluster.reconcile import WELL, PlatformReconciler
from mpijob.cluster.status import refused, status
from mpijob.errors import MpiJobError
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.platform.governance import GROUP, SINGLETON, VERSION, Platform, PlatformStatus, platform_of
from mpijob.serving.health import Health, Number

PLATFORM = Kind(f"{GROUP}/{VERSION}", "MPIJobPlatform", "mpijobplatforms", namespaced=False)
LEASE = "mpijob-operator"
_RESYNC_SECONDS = 60.0
_SOON_SECONDS = 3.0
_OWNERS_SECONDS = 5.0
_STUCK_SECONDS = 300.0
_log = logging.getLogger(__name__)


class Operator:
    """Looks at the platform whenever it is woken, and now and then."""

    def __init__(self, api: Api, election: Election, namespace: str, deploy: Path) -> None:
        self._api = api
        self._election = election
        self._keeper = PlatformReconciler(api, namespace, deploy)
        self._woken = threading.Event()
        self._stop = threading.Event()
        self._wanted: Platform | None = None
        self.beat = time.monotonic()
        self.looks = 0

    def wake(self) -> None:
        """Have the platform looked at now."""
        self._woken.set()

    def stop(self) -> None:
        """End the loop."""
        self._stop.set()
        self._woken.set()

    def run(self) -> None:
        """Keep the platform until told to stop."""
        with self._election:
            due = 0.0
            while not self._stop.is_set():
                self.beat = time.monotonic()
                if self._election.leads and (self.beat >= due or self._woken.is_set()):
                    self._woken.clear()
                    due = self.beat + self._carefully(self.look)
                elif self._election.leads:
                    self._carefully(self.look_at_owners)
                self._woken.wait(min(max(due - time.monotonic(), 0.0), _OWNERS_SECONDS) or 1.0)

    def _carefully(self, look: Callable[[], float]) -> float:
        try:
            return look()
        except MpiJobError as error:
            _log.warning("the platform is looked at again in a moment: %s", error.message)
        except Exception:  # the outermost place: the next look may fare better
            _log.exception("the platform could not be looked at")
        return _SOON_SECONDS

    def look(self) -> float:
        """Take one step; return after how many seconds the next look is due."""
        self.looks += 1
        found = self._api.find(PLATFORM.path("", SINGLETON))
        if found is None or found["metadata"].get("deletionTimestamp"):
            return _RESYNC_SECONDS  # nobody asks for anything: all stays as it is
        before = _status_of(found)
        generation = int(found["metadata"].get("generation", 0))
        try:
            wanted = platform_of(found)
        except msgspec.ValidationError as error:
            self._tell(found, before, refused(before, str(error), generation))
            return _RESYNC_SECONDS
        after = status(before, self._keeper.keep(wanted), generation)
        self._tell(found, before, after)
        self._wanted = wanted
        return _RESYNC_SECONDS if all(one.state in WELL for one in after.components) else _SOON_SECONDS

    def look_at_owners(self) -> float:
        """Keep whom the controller may act as; jobs come and go more often than the platform changes."""
        if self._wanted is not None:
            self._keeper.keep_owners(self._wanted)
        return _OWNERS_SECONDS

    def _tell(self, platform: Document, before: PlatformStatus, after: PlatformStatus) -> None:
        if before == after:
            return
        body = {"metadata": {"uid": platform["metadata"]["uid"]}, "status": msgspec.to_builtins(after)}
        self._api.patch(PLATFORM.path("", SINGLETON, "status"), body)


def _status_of(platform: Document) -> PlatformStatus:
    try:
        return codec.convert(platform.get("status") or {}, PlatformStatus)
    except msgspec.ValidationError:
        return PlatformStatus()


def serve(namespace: str, deploy: Path, *, health_port: int | None = None) -> None:
    """Run the operator of the cluster that the kubeconfig, or this pod, means, until it is ended."""
    stop = until_ended()
    access = kubeconfig.load()
    api = Api(access)
    where = namespace or access.namespace or "default"
    who = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    _define(api)
    operator = Operator(api, Election(Api(access, timeout=4.0), where, LEASE, who), where, deploy)
    loop = threading.Thread(target=operator.run, daemon=True, name="platform")
    loop.start()
    health = contextlib.nullcontext() if health_port is None else _health(operator, health_port)
    try:
        with health, watching(api, PLATFORM.path(), operator.wake):
            stop.wait()
    finally:
        operator.stop()
        loop.join(5.0)


@contextlib.contextmanager
def watching(api: Api, path: str, wake: Callable[[], None]) -> Iterator[None]:
    """Call `wake` at each change of a collection."""
    with Cache(api, {"platform": ListWatch(path)}) as platforms:
        platforms.subscribe(lambda *_: wake())
        yield


def _health(operator: Operator, port: int) -> Health:
    looks = Number("Looks at the platform.", lambda: operator.looks, counter=True)
    return Health(
        port,
        alive=lambda: time.monotonic() - operator.beat < _STUCK_SECONDS,
        ready=lambda: True,
        numbers={"mpijob_operator_looks_total": looks},
    )


def _define(api: Api) -> None:
    """Define our resources, without which there is nothing to watch."""
    objects = Objects(api)
    for document in crds.documents():
        objects.apply(marked(document, "crds"))


__all__ = ["Operator", "serve", "watching"]
