"""Jobs of one cluster do not reach each other: real connections between pods of two jobs and two namespaces.

A pod without any policy stands for whoever else is in the namespace; a listener beside the ranks stands for
whatever a job offers. First everything is open, then the jobs bring their policies.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed import outside
from tests.e2e.cluster.support import (
    PATIENCE,
    TINY,
    Crowd,
    Place,
    a_job,
    begun,
    eventually,
    image,
    own_place,
    said,
)

from mpijob import Job
from mpijob.backends.kubernetes.client import resources
from mpijob.formats.kubernetes import network_policy
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import Family, Network

LISTENING = "python3 -m http.server 8000 >/dev/null 2>&1 & echo begun; sleep 600"
PORT = "8000"
OPEN = Network(isolated=False)
pytestmark = [pytest.mark.security]


@pytest.fixture(scope="module")
def here(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "walls-a") as place:
        yield place


@pytest.fixture(scope="module")
def there(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "walls-b") as place:
        yield place


def a_pod(name: str, command: str) -> dict[str, Any]:
    """Return a pod that belongs to no job."""
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "main",
        "image": image("openmpi4"),
        "command": ["sh", "-c", command],
        "securityContext": own,
    }
    spec = {"securityContext": security, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def visitor(place: Place) -> str:
    """Return a pod of the place that nobody's policy selects, and that serves on a port."""
    place.apply(a_pod("visitor", f"exec python3 -m http.server {PORT}"))
    place.kubectl("wait", "pod/visitor", "--for=condition=Ready", "--timeout=60s")
    return "visitor"


def reaches(place: Place, pod: str, address: str) -> bool:
    argv = ["kubectl", f"--kubeconfig={place.kubeconfig}", f"--namespace={place.namespace}", "exec", pod]
    probe = ["--", "nc", "-z", "-w", "2", address, PORT]
    return subprocess.run([*argv, *probe], capture_output=True, timeout=60, check=False).returncode == 0


def address(pod: dict[str, Any]) -> str:
    return str(pod["status"]["podIP"])


def worker(place: Place, job: Job, index: int = 0) -> dict[str, Any]:
    return place.worker(job, index)


def name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


@pytest.mark.req("FR-025", "SC-009", "FR-SEC-004", "FR-SEC-005", "FR-INT-003", "R10")
def test_nobody_reaches_a_job_that_brings_its_policy(here: Place, there: Place) -> None:
    near, far = visitor(here), visitor(there)
    free = here.client.submit(a_job("open", LISTENING, network=OPEN, resources=TINY))
    mine, other = (here.client.submit(a_job(word, LISTENING, resources=TINY)) for word in ("mine", "other"))
    foreign = there.client.submit(a_job("foreign", LISTENING, resources=TINY))
    for job in (free, mine, other, foreign):
        begun(job)
    target, own = worker(here, mine), worker(here, mine, 1)
    serving = "the listeners answer"
    eventually(lambda: reaches(here, near, address(worker(here, free))), serving)  # before: open to everybody
    assert reaches(there, far, address(worker(here, free)))
    eventually(lambda: reaches(here, name(own), address(target)), serving)  # a job's own pods talk
    sources: dict[str, tuple[Place, str]] = {
        "a pod of the namespace": (here, near),
        "a pod of another namespace": (there, far),
        "another job of the namespace": (here, name(worker(here, other))),
        "a job of another namespace": (there, name(worker(there, foreign))),
        "an open job of the namespace": (here, name(worker(here, free))),
    }
    for who, (place, pod) in sources.items():
        eventually(lambda at=place, pod=pod: not reaches(at, pod, address(target)), f"{who} is held out")  # type: ignore[misc]  # bound per turn
    inside = here.api.get(resources.POD.path(here.namespace, near))
    outside = there.api.get(resources.POD.path(there.namespace, far))
    for destination in (inside, outside):  # and it reaches nobody that it does not name
        assert not reaches(here, name(target), address(destination))
    assert reaches(here, name(own), address(target))
    for job in (free, mine, other, foreign):
        job.delete()


@pytest.mark.req("FR-SEC-005", "FR-025")
def test_what_a_job_names_is_open_to_it_and_nothing_else(here: Place, there: Place) -> None:
    visitor(here), visitor(there)
    wish = a_job(
        "named", LISTENING, resources=TINY, network=Network(egress=(f"namespace/{there.namespace}",))
    )
    job = begun(here.client.submit(wish))
    outside = there.api.get(resources.POD.path(there.namespace, "visitor"))
    inside = here.api.get(resources.POD.path(here.namespace, "visitor"))
    eventually(lambda: reaches(here, name(worker(here, job)), address(outside)), "the place it names is open")
    assert not reaches(here, name(worker(here, job)), address(inside))
    job.delete()


@pytest.mark.testbed
@pytest.mark.req("R10", "FR-INT-003")
def test_the_internet_is_reached_only_by_a_job_that_asks_for_it(here: Place) -> None:
    """A machine beyond the cluster has a public and a private address; the private one stays closed to everybody."""
    asking = Network(egress=(f"internet:{PORT}",))
    with outside.machine(int(PORT)) as far:
        near = visitor(here)
        plain = here.client.submit(a_job("homely", LISTENING, resources=TINY))
        worldly = here.client.submit(a_job("worldly", LISTENING, network=asking, resources=TINY))
        for one in (far.public, far.private):  # the way is there: who has no policy gets through
            eventually(lambda one=one: reaches(here, near, one), f"{one} answers")  # type: ignore[misc]  # bound per turn
        begun(plain), begun(worldly)
        pod = name(worker(here, worldly))
        eventually(lambda: reaches(here, pod, far.public), "who asked reaches the internet")
        assert not reaches(here, pod, far.private)
        for address_there in far:
            assert not reaches(here, name(worker(here, plain)), address_there)
        for job in (plain, worldly):
            job.delete()


@pytest.mark.req("FR-025", "FR-RES-004")
def test_the_policy_goes_with_its_job(here: Place) -> None:
    job = here.running(a_job("short", LISTENING, resources=TINY))
    path = resources.NETWORK_POLICY.path(here.namespace, "short" + well_known.NETWORK_SUFFIX)
    policy = eventually(lambda: here.api.find(path), "the policy is there")
    owner = eventually(lambda: (here.api.find(path) or {})["metadata"].get("ownerReferences"), "it is owned")
    assert owner[0]["name"] == "short"
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    here.kubectl("delete", "trainjob", "short")
    eventually(lambda: here.api.find(path) is None, "the policy is gone", PATIENCE)
    assert job.name == "short"


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "trainjob": ("openmpi4", {}),
    "openmpi5": ("openmpi5", {}),
    "mpijob": ("mpich", {"mpi": Family.MPICH}),
    "intel": ("intel", {"mpi": Family.INTEL}),
}


@pytest.mark.req("FR-025", "R5")
def test_mpi_of_every_family_works_where_everything_else_is_denied(there: Place) -> None:
    there.apply(*network_policy.namespace_defaults(there.namespace))
    jobs = {
        word: a_job(f"walled-{word}", "echo rank", image=image(base), **fields)
        for word, (base, fields) in FAMILIES.items()
    }
    crowd = Crowd(there, *jobs.values())
    for job in jobs.values():
        assert sorted(said(crowd.succeeded(job))) == [0, 1]
        assert there.find(resources.NETWORK_POLICY, job.name + well_known.NETWORK_SUFFIX)
