"""Files of a volume claim, listed and fetched through a reader pod that the restricted policy lets in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import faults
from tests.e2e.cluster.accounts import allow, an_account
from tests.e2e.cluster.furniture import a_claim
from tests.e2e.cluster.page_support import Person, a_server, server_account
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place

from mpijob import MPIJob, Phase
from mpijob.backends.kubernetes.actions import artifacts, claim_reader
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import NotAllowed, NotFound
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import JobRef, Volume, VolumeKind
from mpijob.model.status.audit import AuditQuery

pytestmark = pytest.mark.req("B-artifacts")
SCRIPT = (
    "mkdir -p /out/deep; head -c 3000000 /dev/urandom > /out/model-$MPIJOB_RANK; "
    "cksum < /out/model-$MPIJOB_RANK > /out/deep/sum-$MPIJOB_RANK; ln -sf /etc/passwd /out/link"
)


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "claims") as place:
        yield place


@pytest.fixture(scope="module")
def claim(place: Place) -> Iterator[str]:
    with a_claim(place, "results") as claim:
        yield claim
        place.empty()


def writes(claim: str, name: str, script: str = SCRIPT) -> MPIJob:
    return a_job(name, script, volumes=(Volume(mount="/out", kind=VolumeKind.CLAIM, source=claim),))


def readers(place: Place) -> list[str]:
    pods = place.api.list(resources.POD.path(place.namespace), labels=well_known.READER_LABEL).items
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]


@pytest.fixture(scope="module")
def ended(place: Place, claim: str) -> JobRef:
    return place.succeeded(writes(claim, "leaves")).ref


def test_files_of_a_claim_are_listed_and_fetched(place: Place, ended: JobRef, tmp_path: Path) -> None:
    listed = {one.path: one.size for one in place.client.artifacts(ended)}
    assert {"out/model-0", "out/model-1", "out/deep/sum-0", "out/deep/sum-1"} == listed.keys()
    assert listed["out/model-0"] == 3_000_000
    fetched = place.client.fetch(ended, tmp_path)
    assert sorted(fetched) == sorted(tmp_path / path for path in listed)
    for rank in (0, 1):
        with (tmp_path / f"out/model-{rank}").open("rb") as file:
            assert _cksum(file.read()) == (tmp_path / f"out/deep/sum-{rank}").read_text().split()[0]
    assert [one.verb for one in place.client.audit(AuditQuery(jobs=("leaves",)))][-2:] == [
        "artifacts",
        "fetch",
    ]
    eventually(lambda: not readers(place), "no reader is left")


def _cksum(data: bytes) -> str:
    import subprocess

    return subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout.split()[0].decode()


def test_the_command_line_fetches_a_folder(place: Place, ended: JobRef, tmp_path: Path) -> None:
    told = place.mpijob("artifacts", "list", "leaves", "-o", "json")
    assert len(json.loads(told.stdout)) == 4, told.stderr
    told = place.mpijob("artifacts", "fetch", "leaves", "out/deep", "--to", str(tmp_path))
    assert told.returncode == 0, told.stderr
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["sum-0", "sum-1"]
    told = place.mpijob("artifacts", "fetch", "leaves", "out/nothing", "--to", str(tmp_path))
    assert "the job has no output file 'out/nothing'" in told.stderr


@pytest.mark.security
def test_a_link_is_not_followed(place: Place, ended: JobRef, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        place.client.fetch(ended, tmp_path, ["out/link"])


def test_a_job_that_runs_is_read_too(place: Place, claim: str, tmp_path: Path) -> None:
    job = place.busy(writes(claim, "goes-on", f"{SCRIPT}; echo begun; sleep 300"))
    (fetched,) = place.client.fetch(job.ref, tmp_path, ["out/model-1"])
    assert fetched.stat().st_size == 3_000_000
    assert job.state().phase is Phase.RUNNING
    job.delete(grace_period=0)


@pytest.mark.security
def test_a_reader_whose_creator_is_gone_ends_and_is_swept(place: Place, ended: JobRef) -> None:
    assert isinstance(place.client.backend, KubernetesBackend)
    files = artifacts.job_files(place.client.backend._reader, ended)
    place.api.create(resources.POD.path(place.namespace), claim_reader._document(place.api, files, 5))
    (name,) = readers(place)
    path = resources.POD.path(place.namespace, name)
    finished = ("Succeeded", "Failed")
    eventually(lambda: place.api.get(path)["status"]["phase"] in finished, "the reader has ended", PATIENCE)
    place.client.artifacts(ended)
    eventually(lambda: not readers(place), "it is swept by the next one")


@pytest.mark.security
@pytest.mark.parametrize("without", ["", "pods/exec"])
def test_the_users_own_rights_decide(place: Place, ended: JobRef, tmp_path: Path, without: str) -> None:
    user = f"reads{without.replace('/', '-')}"
    faults.allow(place, user, faults.rules(place, without=without))
    theirs = Place(faults.as_user(place.kubeconfig, user, tmp_path), place.namespace, str(tmp_path))
    if without:
        with pytest.raises(NotAllowed, match="exec"):
            theirs.client.artifacts(ended)
    else:
        assert len(theirs.client.artifacts(ended)) >= 4
    eventually(lambda: not readers(place), "no reader is left")


@pytest.mark.testbed
@pytest.mark.security
def test_the_page_reads_a_claim_as_its_visitor(place: Place, ended: JobRef) -> None:
    base = f"/trainjobs/{place.namespace}/{ended.name}"
    with server_account(place) as path, a_server(path, place.settings.home) as server:
        alice, bob = (Person(server, an_account(place, name)) for name in ("alice", "bob"))
        allow(place, "alice", place)
        assert "out/model-0" in {one["path"] for one in alice.json("GET", f"{base}/artifacts")["items"]}
        assert len(alice.ask("GET", f"{base}/artifact?path=out/model-0").read()) == 3_000_000
        assert alice.status("GET", f"{base}/artifact?path=out/nothing")[0] == 404
        for address in ("/artifacts", "/artifact?path=out/model-0"):
            assert bob.status("GET", f"{base}{address}")[0] == 403
        git = {
            "name": "g",
            "namespace": place.namespace,
            "command": ["true"],
            "code": {"git": {"url": "http://x/y"}},
        }
        status, refusal = alice.status("POST", "/plan", {"job": git})
        assert (status, refusal["findings"][0]["code"]) == (400, "SERVER_FILES")
    eventually(lambda: not readers(place), "no reader is left")
