"""The import path `openshift_ai_sdk.training`: a small distribution of its own over mpijob."""

from __future__ import annotations

import asyncio
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mpijob import Client, JobFailed, Phase
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.errors import Conflict, NotFound
from mpijob.settings import Settings

COMPAT = Path(__file__).resolve().parents[3] / "compat" / "openshift_ai_sdk"


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(COMPAT / "src"))
    for name in [name for name in sys.modules if name.startswith("openshift_ai_sdk")]:
        monkeypatch.delitem(sys.modules, name)
    return import_module("openshift_ai_sdk.training")


@pytest.fixture
def client() -> Client:
    return Client(MemoryBackend(script=Script(jobs={"bad": Outcome(exit_code=1)})), settings=Settings())


@pytest.mark.req("E-sdk", "FR-011")
def test_a_job_is_created_found_awaited_and_deleted(training: Any, client: Client) -> None:
    needs = training.ResourceRequirements(cpu="2", memory="4Gi", gpu=2)
    job = training.MPIJob("hello", num_workers=2, command=["echo", "hi"], resources=needs, client=client)
    assert job.create() is job
    assert (job.spec.world, job.spec.resources.gpu) == (4, 2)
    found = training.MPIJob.get("hello", client=client)
    assert found.wait_for_completion(60).phase is Phase.SUCCEEDED
    assert found.logs(ranks=(3,)) == "[Rank-3] hi\n"
    assert "Succeeded" in found._repr_html_()
    found.delete()
    with pytest.raises(NotFound):
        training.MPIJob.get("hello", client=client)


@pytest.mark.req("FR-013")
def test_the_same_can_be_awaited(training: Any, client: Client) -> None:
    async def life() -> str:
        job = await training.MPIJob(
            "hello", num_workers=2, command=["echo", "hi"], client=client
        ).create_async()
        assert (await job.status_async()).phase is not Phase.FAILED
        await job.wait_for_completion_async(60)
        logs: str = await job.logs_async(ranks=(0,))
        return logs

    assert asyncio.run(life()) == "[Rank-0] hi\n"


def test_a_failure_raises_what_mpijob_raises(training: Any, client: Client) -> None:
    job = training.MPIJob("bad", num_workers=2, command=["run"], client=client).create()
    with pytest.raises(JobFailed, match="exit code 1"):
        job.wait_for_completion(60)
    assert job.phase is Phase.FAILED


def test_a_job_that_was_not_created_says_so(training: Any, client: Client) -> None:
    with pytest.raises(Conflict, match="not created"):
        training.MPIJob("later", command=["run"], client=client).wait_for_completion()


def test_the_distribution_needs_only_mpijob() -> None:
    project = tomllib.loads((COMPAT / "pyproject.toml").read_text())["project"]
    assert [need.split(">")[0] for need in project["dependencies"]] == ["mpijob"]
