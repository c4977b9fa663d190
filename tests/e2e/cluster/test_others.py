"""Jobs that others made, with kubectl or the Kubeflow SDK, are listed, described, heard and deleted like ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from testbed import extras, places
from tests.e2e.cluster.support import PATIENCE, SMALL, TINY, Place, a_job, image, own_place

from mpijob import Job, Phase
from mpijob.backends.kubernetes.client import resources as kinds
from mpijob.backends.kubernetes.preflight.preflight import PLAIN_USER
from mpijob.errors import NotFound
from mpijob.formats.runtimes import builtin
from mpijob.model import Resources

SUM = "from mpi4py import MPI; c = MPI.COMM_WORLD; print('sum', c.allreduce(c.rank + 1), 'of', c.size)"


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "others") as place:
        yield place


@pytest.fixture
def runtime(place: Place) -> Iterator[str]:
    """Install the shipped Open MPI runtime for the whole cluster, under a name of this test's own."""
    small = msgspec.structs.replace(
        builtin.shipped("openmpi"), name=f"shipped-{place.namespace}-{os.urandom(2).hex()}", resources=SMALL
    )
    document = builtin.document(small, image=image("openmpi4"), user=PLAIN_USER)
    place.api.create(kinds.CLUSTER_RUNTIME.path(), document)
    yield small.name
    place.api.delete(kinds.CLUSTER_RUNTIME.path("", small.name))


def check_first_class(place: Place, job: Job, kind: str, words: str, lines: int) -> None:
    """Expect that a job of somebody else's is listed, described, heard and deleted like one of ours."""
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED
    assert [one.kind for one in place.client.jobs(text=job.name)] == [kind]
    described = place.mpijob("describe", job.name)
    assert (described.returncode, "Succeeded" in described.stdout) == (0, True), described.stderr
    assert (
        sum(line.text.decode().count(words) for line in job.logs()) == lines
    )  # ranks' lines may be mixed up
    assert next(iter(job.events())).reason == "Submitted"
    job.delete()
    with pytest.raises(NotFound):
        job.state()


@pytest.mark.req("R2", "FR-INT-006")
def test_a_trainjob_made_with_kubectl_is_first_class(place: Place, runtime: str) -> None:
    trainer = {"numNodes": 2, "args": ["python3", "-c", SUM], "resourcesPerNode": {"limits": limits(SMALL)}}
    spec = {"runtimeRef": {"name": runtime}, "trainer": trainer}
    metadata = {"name": "by-hand"}
    document = {"apiVersion": kinds.TRAINJOB.api, "kind": "TrainJob", "metadata": metadata, "spec": spec}
    place.apply_job(document)
    check_first_class(place, place.client.get("by-hand"), "TrainJob", "sum 3 of 2", 2)


def limits(resources: Resources) -> dict[str, str]:
    return {"cpu": str(resources.cpu), "memory": str(resources.memory)}


@pytest.mark.req("R2", "D-migrate")
def test_an_mpijob_made_with_kubectl_is_first_class(place: Place) -> None:
    one = msgspec.structs.replace(builtin.shipped("mpich"), name="old-style", resources=SMALL)
    document = builtin.document(one, image=image("mpich"), user=PLAIN_USER)
    strip_marks(document)
    place.apply(document)
    check_first_class(place, place.client.get("old-style"), "MPIJob", "of 2 on old-style-worker", 2)


def strip_marks(document: dict[str, Any]) -> None:
    """Take out our labels and annotations: somebody wrote this by hand."""
    document["metadata"] = {"name": document["metadata"]["name"]}
    for replica in document["spec"]["mpiReplicaSpecs"].values():
        replica["template"].pop("metadata", None)


SDK_SCRIPT = """
import sys
from kubeflow.trainer import CustomTrainer, TrainerClient
from kubeflow.common.types import KubernetesBackendConfig

def train():
    from mpi4py import MPI
    c = MPI.COMM_WORLD
    print("sum", c.allreduce(c.rank + 1), "of", c.size, flush=True)

kubeconfig, namespace, runtime = sys.argv[1:]
client = TrainerClient(KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace))
limits = {"cpu": "100m", "memory": "160Mi"}
trainer = CustomTrainer(func=train, num_nodes=2, resources_per_node=limits)
print(client.train(runtime=client.get_runtime(runtime), trainer=trainer))
print(",".join(job.name for job in client.list_jobs()))
"""


@pytest.fixture(scope="module")
def sdk() -> Path:
    """Return a Python that has the Kubeflow SDK, and nothing of ours; it is kept beside the test bed's cache."""
    folder = places.cache() / "kubeflow-sdk"
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        subprocess.run(["python3", "-m", "venv", "--clear", str(folder)], check=True, timeout=120)
        install = [str(python), "-m", "pip", "install", "--quiet", "kubeflow"]
        subprocess.run(install, check=True, timeout=900)
        (folder / "done").touch()
    return python


@pytest.mark.long
@pytest.mark.req("R2", "FR-SDK-004")
def test_a_job_of_the_kubeflow_sdk_is_ours_too_and_it_sees_ours(
    place: Place, runtime: str, sdk: Path, tmp_path: Path
) -> None:
    ours = place.succeeded(a_job("ours"))
    script = tmp_path / "train.py"  # a file, because the SDK reads the source of what is to be trained
    script.write_text(SDK_SCRIPT)
    argv = [str(sdk), str(script), str(place.kubeconfig), place.namespace, runtime]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    name, known = done.stdout.split()
    assert {name, ours.name} <= set(known.split(","))
    check_first_class(place, place.client.get(name), "TrainJob", "sum 3 of 2", 2)


MEETS = """
import json, os, socket, time
print("I am of", socket.gethostname(), flush=True)
told = json.loads(os.environ.get("TF_CONFIG", "{}"))
if told:
    leads, (address,) = told["task"]["type"] == "chief", told["cluster"]["chief"]
    others, (host, port) = len(told["cluster"]["worker"]), address.split(":")
else:
    leads, others = os.environ["RANK"] == "0", int(os.environ["WORLD_SIZE"]) - 1
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
if leads:
    with socket.create_server(("", int(port))) as server:
        for _ in range(others):
            server.accept()[0].close()
while not leads:
    try:
        leads = socket.create_connection((host, int(port)), 5)
    except OSError:
        time.sleep(0.5)
"""
OLDER = [
    ("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Master"),
    ("TFJob", "tfReplicaSpecs", "tensorflow", "Chief"),
]


@pytest.fixture(scope="module")
def older(kubeconfig: Path) -> Iterator[Place]:
    """A place where pods are as this operator makes them, and the operator."""
    with own_place(kubeconfig, "older", labels={}) as place, extras.running(extras.TRAINING_OPERATOR):
        yield place


@pytest.mark.long
@pytest.mark.testbed
@pytest.mark.req("FR-018", "R2")
@pytest.mark.parametrize(("kind", "field", "container", "first"), OLDER)
def test_a_job_of_the_training_operator_is_first_class(
    older: Place, kind: str, field: str, container: str, first: str
) -> None:
    """The operator itself runs it, and its processes find each other by the variables that it gives them."""
    main = {
        "name": container, "image": image("openmpi4"), "command": ["python3", "-c", MEETS],
        "resources": {"requests": limits(TINY), "limits": limits(TINY)},
    }  # fmt: skip
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [main]}}}
    parts = {first: replica, "Worker": {**replica, "replicas": 2}}
    spec = {field: parts, "runPolicy": {"cleanPodPolicy": "None"}}
    name = f"old-{kind.lower()}"
    older.apply({"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
    job = older.client.get(name)
    check_first_class(older, job, kind, f"I am of {name}", 3)


@pytest.mark.req("E-cli", "FR-006")
def test_kubectl_finds_us_as_a_plugin(place: Place) -> None:
    """The real kubectl, with our programs on its path, says what our own command says."""
    env = place.environ(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(("kubectl", "mpijob", "list"), env=env, capture_output=True, text=True, timeout=60)
    rows = [
        [line.split()[:4] for line in text.splitlines()]
        for text in (done.stdout, place.mpijob("list").stdout)
    ]
    assert (done.returncode, rows[0]) == (0, rows[1]), done.stderr  # but for ages
    listed = subprocess.run(
        ("kubectl", "plugin", "list"), env=env, capture_output=True, text=True, timeout=60
    )
    assert "kubectl-mpijob" in listed.stdout
