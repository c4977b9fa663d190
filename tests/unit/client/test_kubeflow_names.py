"""The calls that the product's documents print, word for word."""

from __future__ import annotations

import pytest

from mpijob import Client, Phase
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client.compat import arguments
from mpijob.client.compat.training_client import TrainingClient
from mpijob.errors import Conflict, InvalidJob, Unsupported
from mpijob.model import Amounts, Family
from mpijob.settings import Settings

LARGE = Amounts(cores=1024, memory_bytes=2**44, gpus=64)


def a_backend(**options: object) -> MemoryBackend:
    return MemoryBackend(**{"capacity": LARGE, **options})  # type: ignore[arg-type]  # passed through


@pytest.mark.req("D-sdk")
def test_create_status_events_logs_and_delete_under_their_documented_names() -> None:
    client = Client(a_backend(), settings=Settings())
    job = client.create_mpi_job(
        name="md", runtime="intel-mpi", num_nodes=2, image="i", command=["echo", "x"], resources={"cpu": "2"}
    )
    assert (job.spec.mpi, job.spec.workers, job.spec.resources.cpu) == (Family.INTEL, 2, "2")
    assert client.get_job_status("md").workers_ready == 0
    job.wait(60, {Phase.RUNNING})
    status = client.get_job_status("md")
    assert (status.phase, status.launcher_ready, status.workers_ready, status.workers) == (
        Phase.RUNNING,
        True,
        2,
        2,
    )
    assert [event.reason for event in client.stream_job_events("md")][-1] == "Succeeded"
    assert client.get_job_logs("md", pod_type="worker", pod_index=0) == "[Rank-0] x\n"
    assert client.get_job_logs("md", "launcher") == ""
    client.delete_job("md", grace_period=5)
    assert client.list().total == 0


@pytest.mark.req("C-sdk", "UC2-cmd")
def test_the_molecular_dynamics_story_is_taken_as_printed() -> None:
    client = TrainingClient(a_backend(), settings=Settings())
    mpijob = client.create_job(
        name="protein-folding-sim-001",
        job_kind="MPIJob",
        num_workers=32,
        resources_per_worker={"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "2"},
        container_image="registry.example.com/molecular-dynamics:latest",
        command=["mpirun", "-np", "64", "python", "simulate.py"],
        env={"SIMULATION_STEPS": "10000000", "PROTEIN_ID": "ACE2"},
    )
    assert (mpijob.spec.world, mpijob.spec.resources.gpu) == (64, 2)
    assert client.wait_for_job_completion("protein-folding-sim-001", 60).phase is Phase.SUCCEEDED


@pytest.mark.req("C-sdk")
def test_the_debugging_story_is_taken_as_printed() -> None:
    backend = a_backend(script=Script(jobs={"failed-job": Outcome(exit_code=1)}))
    client = TrainingClient(backend, settings=Settings())
    old = client.create_job(
        name="failed-job", num_workers=2, container_image="custom-mpi:latest", command=["run"]
    )
    old.wait(60)
    client.update_job(name="failed-job", container_image="quay.io/company/custom-mpi:latest")
    new = client.get_job("failed-job")
    assert (new.spec.image, new.spec.command) == ("quay.io/company/custom-mpi:latest", ("run",))
    assert (old.state().phase, new.ref != old.ref) == (Phase.FAILED, True)


def test_a_running_job_is_not_updated() -> None:
    client = TrainingClient(a_backend(script=Script(default=Outcome(hangs=True))), settings=Settings())
    client.create_job(name="busy", num_workers=2, command=["run"]).wait(60, {Phase.RUNNING})
    with pytest.raises(Conflict, match="busy is Running"):
        client.update_job(name="busy", num_workers=4)
    with pytest.raises(InvalidJob, match="nothing to change"):
        client.update_job(name="busy")
    assert client.get_job_status("busy").workers == 2
    assert client.get_job_logs("busy") == ""
    client.delete_job("busy", 0)
    assert client.client.list().total == 0


def test_other_kinds_of_jobs_are_refused() -> None:
    with pytest.raises(Unsupported, match="PyTorchJob"):
        TrainingClient(a_backend(), settings=Settings()).create_job(name="a", job_kind="PyTorchJob")


def test_resources_are_read_as_kubernetes_names_them() -> None:
    found = arguments.resources_of({"cpu": 4, "amd.com/gpu": "1", "rdma/ib": 1})
    assert (found.cpu, found.gpu, found.gpu_kind, found.others) == (4, 1, "amd.com/gpu", {"rdma/ib": 1})
    assert arguments.resources_of({"nvidia.com/mig-1g.5gb": 2}).gpu_kind == "nvidia.com/mig-1g.5gb"
    with pytest.raises(InvalidJob, match="more than one kind"):
        arguments.resources_of({"amd.com/gpu": 1, "nvidia.com/gpu": 1})
    with pytest.raises(InvalidJob, match="whole number"):
        arguments.resources_of({"nvidia.com/gpu": "half"})


def test_a_pod_type_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidJob, match="pod type 'master'"):
        arguments.roles("master")


@pytest.mark.parametrize(
    ("runtime", "family"),
    [
        ("mpi-openmpi-5", Family.OPENMPI),
        ("Open-MPI", Family.OPENMPI),
        ("intel-mpi", Family.INTEL),
        ("", Family.AUTO),
    ],
)
def test_a_runtimes_name_may_say_which_mpi(runtime: str, family: Family) -> None:
    assert arguments.family_of(runtime) is family
