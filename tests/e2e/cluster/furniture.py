"""What a test puts into its place and takes away again: a volume claim, a queue."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import places
from tests.e2e.cluster.support import Place, eventually

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Document
from mpijob.backends.kubernetes.client.resources import Kind

CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
VOLUME = Kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False)
FLAVOR = Kind(resources.KUEUE_API, "ResourceFlavor", "resourceflavors", namespaced=False)


@contextmanager
def a_claim(place: Place, name: str) -> Iterator[str]:
    """Make a volume claim; afterwards its volume is free and empty again, where nobody else sees to that."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    place.put(CLAIM, name, spec=spec)
    bound = eventually(lambda: _volume_of(place, name), f"claim {name} has a volume", 30.0)
    try:
        yield name
    finally:
        remove_claim(place, name)
        _give_back(place, place.api.find(VOLUME.path("", bound)))


def remove_claim(place: Place, name: str) -> None:
    """Delete a claim and the pods that hold it, and wait until it is gone."""
    place.take_away(CLAIM, name)
    for pod in place.api.list(resources.POD.path(place.namespace)).items:
        if any(
            (one.get("persistentVolumeClaim") or {}).get("claimName") == name
            for one in pod["spec"]["volumes"]
        ):
            place.api.delete(resources.POD.path(place.namespace, pod["metadata"]["name"]), grace_seconds=0)
    eventually(lambda: place.find(CLAIM, name) is None, f"claim {name} is gone", 60.0)


def _give_back(place: Place, volume: Document | None) -> None:
    """Free a volume that is retained: the test bed has few, and wipes none by itself."""
    if volume is None or volume["spec"]["persistentVolumeReclaimPolicy"] != "Retain":
        return
    folder = Path((volume["spec"].get("hostPath") or {}).get("path", "/nowhere"))
    if folder.is_relative_to(places.run_state()):
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    place.api.patch(VOLUME.path("", volume["metadata"]["name"]), {"spec": {"claimRef": None}})


def _volume_of(place: Place, claim: str) -> str:
    found = place.find(CLAIM, claim)
    bound = found is not None and found["status"].get("phase") == "Bound"
    return str(found["spec"]["volumeName"]) if found is not None and bound else ""


@contextmanager
def a_queue(place: Place, cpu: str) -> Iterator[str]:
    """Make a Kueue queue of so many CPUs for one namespace, in which the higher priority wins."""
    name = place.namespace
    amounts = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "4Gi"}]
    flavor = {"name": name, "resources": amounts}
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}],
    }
    place.put(FLAVOR, name)
    place.put(resources.CLUSTER_QUEUE, name, spec=spec)
    place.put(resources.LOCAL_QUEUE, "own", spec={"clusterQueue": name})
    try:
        yield "own"
    finally:
        for kind in (resources.CLUSTER_QUEUE, FLAVOR):
            place.take_away(kind, name)
