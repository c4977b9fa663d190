"""What the tests of the client against a real API server share: its users, and objects that are taken away again."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, Document
from mpijob.backends.kubernetes.client.watch import Watch

NAMESPACE = "team-a"
MAPS = resources.CONFIG_MAP.path(NAMESPACE)
PODS = resources.POD.path(NAMESPACE)
AccessOf = Callable[[str], Access]


def a_map(name: str, label: str, **data: str) -> Document:
    metadata = {"name": name, "labels": {"test": label}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def accesses(kubeconfig_of: Callable[[str], Path]) -> AccessOf:
    """The fixture `access_of` of those who want it, for a whole module."""
    return lambda user: load(path=str(kubeconfig_of(user)))


def connected(access_of: AccessOf) -> Iterator[Api]:
    """The fixture `alice` of those who want it, for a whole module."""
    with Api(access_of("alice")) as api:
        yield api


def labelled(alice: Api) -> Iterator[str]:
    """The fixture `label` of those who want it: nobody else uses it, and what carries it is deleted afterwards."""
    value = uuid.uuid4().hex[:12]
    yield value
    for path in (MAPS, PODS):
        for item in alice.list(path, labels=f"test={value}").items:
            alice.delete(f"{path}/{item['metadata']['name']}", grace_seconds=0)


@contextlib.contextmanager
def ended_after(seconds: float, changes: Watch) -> Iterator[None]:
    """End a watch after this time: whoever reads it then sees its end."""
    timer = threading.Timer(seconds, changes.close)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
