"""What the image inspector says of the cluster's own images, and what really runs in them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from testbed import runtime
from tests.e2e.cluster.support import PATIENCE, Place, a_job, a_program, blamed, image, own_place, said

from mpijob import Client, Job, Phase
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.errors import NotFound
from mpijob.model import Family, Resources

ROOMY = Resources(cpu="150m", memory="512Mi")
VERSION = (
    "from mpi4py import MPI; print('library', MPI.Get_library_version().split(chr(10))[0].strip(chr(0)))"
)
FIT = {
    "openmpi4": (Family.OPENMPI, "Open MPI v"),
    "openmpi5": (Family.OPENMPI, "Open MPI v"),
    "mpich": (Family.MPICH, "MPICH Version:"),
    "intel": (Family.INTEL, "Intel(R) MPI Library "),
}


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "images") as place:
        yield place


@pytest.fixture(scope="module")
def jobs(place: Place) -> dict[str, Job]:
    """Send a job to each image at once: they run while images are exported and inspected."""
    sent = {
        name: a_program(f"says-{name}", VERSION, image=image(name), mpi=family, workers=1, resources=ROOMY)
        for name, (family, _) in FIT.items()
    }
    sent["nosshd"] = a_job("says-nosshd", "true", workers=1, image=image("nosshd"))
    return {name: place.client.submit(job) for name, job in sent.items()}


def inspected(place: Place, folder: Path, name: str, *, ends: int = 0) -> dict[str, Any]:
    """Return what the command says of an image as the container runtime has it."""
    archive = folder / f"{name}.tar"
    runtime.export_image(image(name), archive)
    done = place.mpijob("image", "inspect", str(archive), "-o", "json")
    archive.unlink()
    assert done.returncode == ends, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.testbed
@pytest.mark.req("FR-INT-004")
@pytest.mark.parametrize("name", FIT)
def test_an_image_holds_what_the_inspector_says_and_runs_as_it_says(
    place: Place, jobs: dict[str, Job], name: str, tmp_path: Path
) -> None:
    family, words = FIT[name]
    found = inspected(place, tmp_path, name)
    assert found["verdict"] == "ready"
    (mpi,) = found["image"]["mpis"]
    assert (mpi["family"], found["image"]["launcher_family"]) == (family.value, family.value)
    assert jobs[name].wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
    ((line,),) = said(jobs[name], regex="^library").values()
    version = line.partition(words)[2].strip().split()[0].strip(",")
    assert mpi["version"].startswith(version), line


@pytest.mark.testbed
def test_an_image_without_sshd_is_not_fit_and_a_job_in_it_fails_for_that_reason(
    place: Place, jobs: dict[str, Job], tmp_path: Path
) -> None:
    found = inspected(place, tmp_path, "nosshd", ends=1)
    assert (found["verdict"], found["findings"][0]["code"]) == ("broken", "IMAGE_NO_SSH")
    assert blamed(jobs["nosshd"].wait(PATIENCE))[:2] == (Phase.FAILED, "NO_SSHD")


@pytest.fixture
def registry() -> Iterator[str]:
    """Yield the address of a registry that has one image; what real ones answer is in tests/integration/registry."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200 if self.path == "/v2/team/mpi/manifests/1" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.req("UC4")
def test_a_missing_image_is_told_before_the_job_is_created(place: Place, registry: str) -> None:
    here = {"registry.example.com": registry}
    settings = msgspec.structs.replace(place.settings, registries=here)
    with Client(KubernetesBackend(settings), settings=settings) as client:
        for tag, expected in (("1", []), ("typo", ["IMAGE_NOT_FOUND"])):
            plan = client.plan(a_job(f"asks-{tag}", image=f"registry.example.com/team/mpi:{tag}"))
            assert [one.code for one in plan.notices if one.code.startswith("IMAGE_")] == expected
    strict = msgspec.structs.replace(settings, image_check="refuse")
    with (
        Client(KubernetesBackend(strict), settings=strict) as client,
        pytest.raises(NotFound, match="has no image"),
    ):
        client.submit(a_job("asks-refused", image="registry.example.com/team/mpi:typo"))
    assert place.pods("asks-refused") == []
