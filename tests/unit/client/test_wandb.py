"""A job's run at Weights & Biases: named after the job, and found again by what the ranks' client said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.cluster_support import a_job

from mpijob import Client, MPIJob
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client.async_client import AsyncClient
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.formats.launch import command_line
from mpijob.model import Secret
from mpijob.settings import Settings

KEY = Secret(env="WANDB_API_KEY", source="tracking/wandb")
RUN = "https://wandb.ai/cv/bert/runs/k3x9"
NAMES = {"WANDB_NAME": "bert", "WANDB_RUN_GROUP": "bert"}


@pytest.mark.req("C-wandb")
def test_the_runs_of_a_job_bear_its_name_where_it_has_a_key_or_a_variable_for_them() -> None:
    assert command_line.job_variables(MPIJob(name="bert", secrets=(KEY,))).items() >= NAMES.items()
    assert (
        command_line.job_variables(MPIJob(name="bert", env={"WANDB_MODE": "offline"})).items()
        >= NAMES.items()
    )
    assert not command_line.job_variables(MPIJob(name="bert", env={"MY_WANDB": "x"})).keys() & NAMES.keys()


@pytest.mark.req("C-wandb")
def test_the_names_reach_the_ranks_of_a_cluster_and_are_no_variables_of_the_job_afterwards() -> None:
    job = a_job(secrets=(KEY,), env={"WANDB_PROJECT": "vision"})
    written = trainjob.write(job, Shape())
    assert "WANDB_RUN_GROUP" in str(written)
    assert trainjob.read(written).job.env == job.env
    assert mpijob.read(mpijob.write(job, Shape())).job.env == job.env
    own = job.replace(env={"WANDB_NAME": "mine"})
    assert trainjob.read(trainjob.write(own, Shape())).job.env == own.env


def linked(place: Path, line: str, job: MPIJob, **settings: str) -> dict[str, str]:
    backend = MemoryBackend(script=Script(jobs={job.name: Outcome(lines=(line,))}))
    known = Settings(home=str(place), **settings)  # type: ignore[arg-type]  # texts only
    with Client(backend, settings=known) as client:
        client.submit(job).wait_for_completion(10)
        return client.links(job.name)


@pytest.mark.req("C-wandb", "PMV-014")
def test_the_run_that_the_client_named_is_the_jobs_link(tmp_path: Path) -> None:
    job = MPIJob(name="bert", workers=2, command=("true",), secrets=(KEY,))
    backend = MemoryBackend(
        script=Script(jobs={"bert": Outcome(lines=(f"wandb: 🚀 View run bert at: {RUN}",))})
    )
    known = Settings(home=str(tmp_path))
    with Client(backend, settings=known) as client:
        client.submit(job).wait_for_completion(10)
        assert client.links("bert") == {"wandb": RUN}
        assert client.links("bert") == {"wandb": RUN}  # kept: the lines may be gone

    async def asked() -> dict[str, str]:
        async with AsyncClient(backend, settings=known) as client:
            return await client.links("bert")

    assert asyncio.run(asked()) == {"wandb": RUN}


@pytest.mark.security
@pytest.mark.req("C-wandb")
def test_no_line_of_a_job_leads_to_a_server_that_is_not_the_settings(tmp_path: Path) -> None:
    job = MPIJob(name="bert", workers=2, command=("true",), env={"WANDB_MODE": "online"})
    for line in ("View run at https://evil.example/x", "View run at https://wandb.ai.evil.example/x"):
        assert linked(tmp_path, line, job) == {}
    own = "View run at https://wandb.example.com/cv/bert/runs/1"
    assert linked(tmp_path, own, job, wandb="https://wandb.example.com/") == {
        "wandb": "https://wandb.example.com/cv/bert/runs/1"
    }
    assert linked(tmp_path / "none", f"View run at {RUN}", job.replace(env={})) == {}
