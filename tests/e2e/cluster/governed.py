"""Our own services beside a cluster test: controllers as processes, the platform's resources, what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from tests.e2e.cluster.support import PATIENCE, Place, eventually
from tests.e2e.cluster.tollgate import Gate

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Document
from mpijob.backends.kubernetes.controller.controller import LIMITS
from mpijob.backends.kubernetes.controller.leader_election import LEASE
from mpijob.cluster import crds
from mpijob.cluster.operator import PLATFORM
from mpijob.formats.kubernetes.metadata.controller_notes import COMPONENT, PROGRESS_ANNOTATION
from mpijob.model.platform.governance import NamespaceLimits

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
QUIET: dict[str, Any] = {
    "runtimes": "Removed",
    "services": {"controller": {"managementState": "Removed"}, "admission": {"managementState": "Removed"}},
}


class Service:
    """One of our processes, and what it has said."""

    def __init__(self, place: Place, *words: str, ready: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            place.argv(*words), env=place.environ(**environ), stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        eventually(lambda: self.process.poll() is not None or ready in self.said, f"it says {ready}", 60)
        assert self.process.poll() is None, self.said

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


@contextmanager
def controller(place: Place, *words: str, **environ: str) -> Iterator[Service]:
    """Run a controller of the place's namespace that is ready, and kill it if the test did not."""
    service = Service(place, "controller", *words, ready="controller of the jobs", **environ)
    try:
        yield service
    finally:
        service.kill()


@contextmanager
def doomed(place: Place, gate: Gate, kubeconfig: str, *words: str) -> Iterator[Service]:
    """Run one of our services through a gate, which kills it at its step; nobody waits until it is ready."""
    service = Service(place, *words, ready="", KUBECONFIG=kubeconfig)
    gate.victim = service.process
    try:
        yield service
    finally:
        service.kill()


def operator_words(place: Place) -> tuple[str, ...]:
    """Return how an operator of the place is started."""
    return ("operator", f"--namespace={place.namespace}", f"--deploy={DEPLOY}")


def free_lease(place: Place, name: str) -> None:
    """Let the next one lead at once: whoever held the Lease is dead, and a test need not wait for that to show."""
    place.api.delete(LEASE.path(place.namespace, name))


def install_resources(place: Place) -> None:
    """Define the platform's resources in the cluster; whoever runs beside may use them, so they stay."""
    for document in crds.documents():
        place.kubectl(
            "apply", "--server-side", "--force-conflicts", "--filename=-", stdin=json.dumps(document)
        )
    for name in ("mpijobplatforms", "mpijoblimits"):
        place.kubectl("wait", "--for=condition=Established", f"crd/{name}.mpijob.dev", "--timeout=30s")


@contextmanager
def limits(place: Place, **fields: Any) -> Iterator[None]:
    """Give the place's namespace limits."""
    spec = msgspec.to_builtins(NamespaceLimits(**fields))
    document = {"apiVersion": LIMITS.api, "kind": LIMITS.name, "metadata": {"name": place.namespace}}
    place.api.create(LIMITS.path(), {**document, "spec": json.loads(json.dumps(spec))})
    try:
        yield
    finally:
        place.api.delete(LIMITS.path("", place.namespace))


def told(place: Place, name: str) -> list[Document]:
    """Return what the controller said about a job's object, in order."""
    events = place.api.list(resources.EVENT.path(place.namespace)).items
    mine = [one for one in events if (one.get("source") or {}).get("component") == COMPONENT]
    of_job = [one for one in mine if one["involvedObject"]["name"] == name]
    return sorted(of_job, key=lambda one: str(one["metadata"]["creationTimestamp"]))


def transitions(place: Place, name: str) -> list[str]:
    """Return the phases that were told of a job's object."""
    phases = {"Queued", "Pending", "Initializing", "Running", "Suspended", "Succeeded", "Failed", "Cancelled"}
    return [one["reason"] for one in told(place, name) if one["reason"] in phases]


def noted_phase(place: Place, name: str) -> str:
    """Return the phase that the controller has noted on a TrainJob, "" for none."""
    job = place.find(resources.TRAINJOB, name)
    note = ((job or {}).get("metadata", {}).get("annotations") or {}).get(PROGRESS_ANNOTATION, "{}")
    return str(json.loads(note).get("phase", ""))


# -- the platform ------------------------------------------------------------------------------------
@contextmanager
def operator(place: Place) -> Iterator[Service]:
    free_lease(place, "mpijob-operator")
    service = Service(place, *operator_words(place), ready="")
    try:
        yield service
    finally:
        service.kill()


@contextmanager
def platform(place: Place, spec: Mapping[str, Any]) -> Iterator[None]:
    document = {"apiVersion": PLATFORM.api, "kind": PLATFORM.name, "metadata": {"name": "default"}}
    place.api.create(PLATFORM.path(), {**document, "spec": dict(spec)})
    try:
        yield
    finally:
        place.api.delete(PLATFORM.path("", "default"))


def want(place: Place, **spec: Any) -> None:
    place.api.patch(PLATFORM.path("", "default"), {"spec": spec})


def component(place: Place, name: str) -> dict[str, str]:
    """Return how a component stands by the platform's newest status."""
    found = place.api.get(PLATFORM.path("", "default"))
    status = found.get("status") or {}
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return {}
    return next((one for one in status["components"] if one["name"] == name), {})


def becomes(place: Place, name: str, state: str, seconds: float = 240.0) -> dict[str, str]:
    def look() -> dict[str, str] | None:
        found = component(place, name)
        return found if found.get("state") == state else None

    try:
        return eventually(look, f"{name} is {state}", seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}: {component(place, name)}") from None
