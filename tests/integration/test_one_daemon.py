"""One daemon starts the ranks of all workers: what plain mpirun can do between ranks works, and each has its worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mpijob import Client, MPIJob
from mpijob.backends.local import LocalBackend
from mpijob.model import Code, Launch, Resources
from mpijob.settings import Settings

from .support import a_job, said, succeeded

pytestmark = pytest.mark.engine

ROOMY = Resources(cpu="500m", memory="512Mi")
TOGETHER = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
near = world.Split_type(MPI.COMM_TYPE_SHARED)
window = MPI.Win.Allocate(8, 8, comm=world)
window.tomemory()[:] = bytes([world.rank + 1] * 8)
window.Fence()
got = bytearray(8)
window.Get(got, (world.rank + 1) % world.size)
window.Fence()
window.Free()
local = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or os.environ["MPI_LOCALRANKID"]
print(near.size, got[0], os.environ["MPIJOB_WORKER"], os.environ["MPIJOB_LOCAL_RANK"], local)
"""
SPAWN = """
import sys
from mpi4py import MPI
child = "from mpi4py import MPI; up = MPI.Comm.Get_parent(); up.gather(MPI.COMM_WORLD.size, root=0); up.Disconnect()"
below = MPI.COMM_WORLD.Spawn(sys.executable, args=["-c", child], maxprocs=2)
sizes = below.gather(None, root=MPI.ROOT if MPI.COMM_WORLD.rank == 0 else MPI.PROC_NULL)
below.Disconnect()
if MPI.COMM_WORLD.rank == 0:
    print("children see worlds of", sizes)
"""
APART = """
import os
variables = ("OMPI_MCA_plm_rsh_agent", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "HYDRA_LAUNCHER_EXEC")
families = dict(zip(variables, ("openmpi", "intel", "mpich")))
local_size = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or os.environ["MPI_LOCALNRANKS"]
print(next(name for variable, name in families.items() if variable in os.environ), local_size)
"""
EVENTS = "from mpi4py import MPI\nimport time\nMPI.COMM_WORLD.barrier()\ntime.sleep(1)\n"


def job_of(name: str, family: str, program: str, **fields: Any) -> MPIJob:
    code = Code(files={"program.py": program})
    return a_job(name, mpi=family, command=("python", "program.py"), resources=ROOMY, code=code, **fields)


@pytest.mark.parametrize(("workers", "slots"), [(2, 1), (1, 2), (2, 2)])
def test_ranks_share_memory_across_workers_and_know_their_own(
    client: Client, family: str, workers: int, slots: int
) -> None:
    job = succeeded(client, job_of("together", family, TOGETHER, workers=workers, slots=slots))
    world = workers * slots
    assert {rank: lines[-1] for rank, lines in said(job).items()} == {
        rank: (f"{world} {(rank + 1) % world + 1} {rank // slots} {rank % slots} {rank % slots}")
        for rank in range(world)
    }
    assert [rank.worker for rank in job.state().ranks] == [rank // slots for rank in range(world)]


@pytest.mark.parametrize("family", ["mpich", "openmpi"])
def test_a_world_can_spawn_more_ranks(client: Client, family: str) -> None:
    job = succeeded(client, job_of("spawns", family, SPAWN, workers=2))
    assert said(job)[0] == ["children see worlds of [2, 2]"]


def test_workers_are_nodes_where_the_setting_asks_for_it(settings: Settings, family: str) -> None:
    settings = msgspec.structs.replace(settings, local_nodes=True)
    with Client(LocalBackend(settings), settings=settings) as client:
        job = succeeded(client, job_of("apart", family, APART, workers=2))
        assert client.plan(job_of("apart", family, APART)).nodes
    assert said(job) == {0: [f"{family} 1"], 1: [f"{family} 1"]}


@pytest.mark.parametrize(
    "fields",
    [
        {"launch": Launch(map_by="core")},
        {"mpi": "openmpi", "launch": Launch(rankfile="ranks.txt")},
        {"labels": {"fault.mpijob/kill-daemon": "1_0.3"}},
        {"command": ("mpiexec", "-n", "2", "true")},
    ],
)
def test_workers_are_nodes_where_the_job_needs_it(client: Client, fields: dict[str, Any]) -> None:
    plan = client.plan(a_job("needs", **fields))
    assert plan.nodes
    assert "HYDRA_LAUNCHER_EXEC" in plan.env or "PRTE_MCA_plm_ssh_agent" in plan.env


def test_open_mpi_runs_on_several_workers_without_namespaces(settings: Settings) -> None:
    settings = msgspec.structs.replace(settings, isolation="process-groups")
    with Client(LocalBackend(settings), settings=settings) as client:
        job = succeeded(client, job_of("grouped", "openmpi", TOGETHER, workers=2))
    assert {lines[-1].split()[0] for lines in said(job).values()} == {"2"}


@pytest.mark.req("FR-OBS-003", "D-events", "C-events")
def test_mpi_is_said_to_be_up_when_it_is(client: Client, family: str) -> None:
    job = succeeded(client, job_of("up", family, EVENTS, workers=2))
    (ready,) = (event for event in job.events() if event.reason == "MPIReady")
    assert "MPI initialization completed" in ready.message


def test_a_program_without_mpi_is_told_as_such(client: Client) -> None:
    job = succeeded(client, a_job("plain", "sleep 1.5"))
    reasons = {event.reason: event.message for event in job.events()}
    assert "MPIReady" not in reasons
    assert "no rank has loaded an MPI library" in reasons["NoMPI"]


def test_what_the_users_shell_tunes_reaches_the_ranks(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_MCA_btl", "self,tcp")
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", "nobody")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("WM_PROJECT_DIR", "/opt/foam")
    monkeypatch.setenv("SOME_TOKEN", "hush")
    env = client.plan(a_job("tuned", mpi="openmpi", env={"OMP_PROC_BIND": "true"})).env
    tuned = {
        "OMPI_MCA_btl": "self,tcp",
        "OMP_NUM_THREADS": "3",
        "WM_PROJECT_DIR": "/opt/foam",
        "OMP_PROC_BIND": "true",
    }
    assert {name: env.get(name) for name in tuned} == tuned
    assert not {"OMPI_MCA_plm_rsh_agent", "SOME_TOKEN"} & env.keys()


def test_the_users_own_file_of_parameters_is_respected(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi" / "mca-params.conf").write_text("# mine\nbtl = self,tcp\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "OMPI_MCA_btl" not in client.plan(a_job("filed", mpi="openmpi")).env
