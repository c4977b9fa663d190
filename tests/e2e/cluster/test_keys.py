"""A job's ssh keys: one pair for each job, of a kind that FIPS allows, gone with the job."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, image, own_place

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Document
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.model import Family

JOBS = 100
pytestmark = [pytest.mark.security]


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "keys") as made:
        yield made


def keys(place: Place) -> list[Document]:
    found = place.api.list(resources.SECRET.path(place.namespace), fields="type=kubernetes.io/ssh-auth")
    return found.items


def public(secret: Document) -> bytes:
    return b" ".join(base64.b64decode(secret["data"]["ssh-publickey"]).split()[:2])


def at_rest(place: Place, count: int) -> None:
    """Create jobs that rest: each gets its keys, none a pod."""
    shape = place.shape(suspend=True)
    runtime, job = trainjob.write(a_job("rest", namespace=place.namespace, image=image("openmpi4")), shape)
    place.apply_job(job | {"metadata": job["metadata"] | {"name": "rest-0"}}, runtime)
    made = [job | {"metadata": job["metadata"] | {"name": f"rest-{index}"}} for index in range(1, count)]
    for one in made:
        place.api.create(resources.TRAINJOB.path(place.namespace), one)


@pytest.mark.req("SC-010", "FR-005", "E-fips", "Q-SEC-003")
def test_a_hundred_jobs_have_a_hundred_keys_and_none_outlives_its_job(place: Place) -> None:
    at_rest(place, JOBS)
    eventually(lambda: len(keys(place)) >= JOBS, "every job has its keys", PATIENCE)
    found = keys(place)
    assert len({public(one) for one in found}) == len(found) == JOBS
    for one in found:
        private = serialization.load_pem_private_key(base64.b64decode(one["data"]["ssh-privatekey"]), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp521r1"
        assert one["immutable"]
        assert one["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    place.api.delete(resources.TRAINJOB.path(place.namespace))
    eventually(lambda: not keys(place), "every key is gone", PATIENCE)


@pytest.mark.req("SC-010", "FR-005")
def test_the_other_engines_keys_go_with_the_job_too(place: Place) -> None:
    fields = {"namespace": place.namespace, "image": image("mpich"), "mpi": Family.MPICH}
    for name in ("one", "two"):
        place.apply(*mpijob.write(a_job(name, **fields), place.shape(family=Family.MPICH)))
    eventually(lambda: len(keys(place)) == 2, "both have keys", PATIENCE)
    assert len({public(one) for one in keys(place)}) == 2
    place.kubectl("delete", "mpijobs.kubeflow.org", "--all", "--wait=false")
    eventually(lambda: not keys(place), "both are gone", PATIENCE)
    assert json.loads(place.kubectl("get", "mpijobs.kubeflow.org", "--output=json"))["items"] == []
