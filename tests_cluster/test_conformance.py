"""The promises that every engine keeps, on a real cluster: the same tests as for the local engine.

The place is a Kueue queue of 400 millicores, so that jobs must wait for each other there too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance import builders
from tests.conformance.test_life import *  # noqa: F403 - the promises themselves
from tests.conformance.test_queue import *  # noqa: F403
from tests.conformance.test_telling import *  # noqa: F403

from mpijob import Client
from mpijob.backends.kubernetes import kinds
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.kinds import Kind
from mpijob.backends.kubernetes.kubeconfig import load
from mpijob.settings import Settings

# Usage is measured while a job runs; a cluster keeps no samples of a job that has ended until the recorder is there.
del test_usage_is_measured_for_each_worker  # noqa: F821 - one of the promises above

NAMESPACES = ("promise-a", "promise-b")
QUEUE = "promises"


@pytest.fixture(scope="session")
def image() -> str:
    """Return an image with Open MPI, sshd and Python that the cluster has."""
    return os.environ.get("MPIJOB_TEST_IMAGE", "testbed.local/openmpi4:1")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, image: str) -> builders.Place:
    """Make the jobs as small as the queue, and name them an image."""
    told = {"millicores": 400, "image": image, "queue": QUEUE, "namespaces": NAMESPACES}
    for field, value in told.items():
        monkeypatch.setattr(builders.place, field, value)
    return builders.place


@pytest.fixture(scope="module")
def quarters(kubeconfig: Path) -> Iterator[None]:
    """Make two namespaces of our own with a queue of 400 millicores, and take them away again."""
    api = Api(load(path=str(kubeconfig)))
    made = [*_quarters()]
    for kind, document in made:
        api.create(kind.path((document["metadata"]).get("namespace", "")), document)
    yield
    for kind, document in reversed(made):
        api.delete(kind.path(document["metadata"].get("namespace", ""), document["metadata"]["name"]))


def _quarters() -> Iterator[tuple[Kind, dict[str, Any]]]:
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in NAMESPACES:
        metadata = {"name": name, "labels": enforce}
        yield kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    urgent = {
        "apiVersion": kinds.KUEUE_API,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "promise-100"},
    }
    yield kinds.WORKLOAD_PRIORITY, urgent | {"value": 100}
    quotas = [{"name": "cpu", "nominalQuota": "400m"}, {"name": "memory", "nominalQuota": "8Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quotas}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    queue = {"apiVersion": kinds.KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": QUEUE}, "spec": spec}
    yield kinds.CLUSTER_QUEUE, queue
    for name in NAMESPACES:
        metadata = {"name": QUEUE, "namespace": name}
        local = {"apiVersion": kinds.KUEUE_API, "kind": "LocalQueue", "metadata": metadata}
        yield kinds.LOCAL_QUEUE, local | {"spec": {"clusterQueue": QUEUE}}


@pytest.fixture
def settings(kubeconfig: Path, tmp_path: Path, quarters: None) -> Settings:
    return Settings(
        home=str(tmp_path), engine="kubernetes", kubeconfig=str(kubeconfig), namespace=NAMESPACES[0]
    )


@pytest.fixture
def backend(settings: Settings) -> KubernetesBackend:
    return KubernetesBackend(settings)


@pytest.fixture
def client(backend: KubernetesBackend, settings: Settings) -> Iterator[Client]:
    with Client(backend, settings=settings) as client:
        yield client
        for namespace in NAMESPACES:
            for state in [*client.jobs(namespace=namespace)]:
                client.delete(state.ref.name, namespace=namespace, grace_period=0)
