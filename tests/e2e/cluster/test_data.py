"""S3 volumes in real pods: fetched before the job, stored when it ends, by a data connection of the namespace."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from testbed import places, processes, services
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place
from tests.integration.buckets_support import content, s3_server, variables

from mpijob import Client, Phase
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.s3_volumes import Bucket, Connection
from mpijob.errors import NotFound
from mpijob.model import Network, Volume, VolumeKind

# the server and the services' image are on the test bed's machine; long, until a whole run was seen green
pytestmark = [pytest.mark.testbed, pytest.mark.long]


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "data") as place:
        settings = replace(place.settings, service_image=services.provide())
        place.client = Client(KubernetesBackend(settings), settings=settings)
        yield place


@pytest.fixture(scope="module")
def lake(place: Place) -> Iterator[Connection]:
    """Return a bucket on the node, where pods can reach it, whose connection is a Secret as Open Data Hub makes it."""
    with s3_server(places.NODE_IP, within=[str(word) for word in processes.inside()]) as connection:
        data = {
            key: base64.b64encode(value.encode()).decode() for key, value in variables(connection).items()
        }
        labels = {"opendatahub.io/dashboard": "true", "opendatahub.io/managed": "true"}
        notes = {"opendatahub.io/connection-type": "s3", "openshift.io/display-name": "Lake"}
        place.put(resources.SECRET, "lake", data=data, metadata={"labels": labels, "annotations": notes})
        yield connection


@pytest.mark.req("SC-015", "AC7", "D-storage", "Q14")
def test_a_job_reads_its_input_from_a_data_connection_and_its_output_is_stored(
    place: Place, lake: Connection, tmp_path: Path
) -> None:
    Bucket(lake, "in").put("numbers.txt", b"1 2 3")
    volumes = (
        Volume(mount="/in", kind=VolumeKind.S3, source="lake/in", read_only=True),
        Volume(mount="/out", kind=VolumeKind.S3, source="lake/out"),
    )
    script = "tr 123 456 </in/numbers.txt >/out/rank-$MPIJOB_RANK; env | grep -c ^AWS_ || true"
    job = place.client.submit(a_job("carry", script, volumes=volumes))
    state = job.wait(PATIENCE)
    assert state.phase is Phase.SUCCEEDED, state.message
    stored = {"rank-0": b"4 5 6", "rank-1": b"4 5 6"}
    eventually(lambda: content(lake, "out") == stored, "what each worker wrote is stored", 60)
    assert {line.text for line in job.logs() if line.rank is not None} == {b"0"}  # no rank sees the keys
    assert job.spec.volumes == volumes
    assert [one.path for one in place.client.artifacts("carry")] == ["out/rank-0", "out/rank-1"]
    (fetched,) = place.client.fetch("carry", tmp_path, ["out/rank-1"])
    assert fetched.read_bytes() == b"4 5 6"
    with pytest.raises(NotFound):
        place.client.fetch("carry", tmp_path, ["out/../in/numbers.txt"])
    job.delete(grace_period=0)


@pytest.mark.req("AC7")
def test_a_data_connection_that_is_not_there_is_named_while_the_job_waits(place: Place) -> None:
    volume = Volume(mount="/in", kind=VolumeKind.S3, source="sea/in")
    job = place.client.submit(a_job("lost", volumes=(volume,), network=Network(isolated=False)))
    told = eventually(lambda: _told(job), "the state names the secret", 60)
    assert "sea" in told
    job.delete(grace_period=0)


def _told(job: object) -> str:
    from mpijob import Job

    assert isinstance(job, Job)
    state = job.state()
    text = " ".join([state.message, *(one.message for one in state.findings)])
    return text if "sea" in text else ""
