"""Parity with PyTorchJob, TFJob and the Kubeflow SDK: the tables of the page are true, and long enough."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shlex

import pytest
from tests import pages
from tests.docs.readers import ROOT
from tests.docs.test_pages import complaint

from mpijob import AsyncClient, Client, MPIJob, Phase
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.errors import InvalidJob, JobFailed
from mpijob.settings import Settings

PAGE = pages.read("parity")
KUBEFLOW = json.loads((ROOT / "tests" / "fixtures" / "parity" / "kubeflow-trainer-client.json").read_text())
NOT_JOBS = {"list_runtimes", "get_runtime", "get_runtime_packages"}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading."""
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


@pytest.mark.req("FR-CLI-004")
def test_at_least_95_percent_of_what_other_kinds_offer_is_there() -> None:
    others = [row for row in rows("Command line") if row[1] != "–"]
    there = [row for row in others if row[2] != "–"]
    assert len(others) >= 20
    assert len(there) / len(others) >= 0.95


@pytest.mark.req("FR-CLI-004")
@pytest.mark.parametrize("row", rows("Command line"), ids=lambda row: str(row[0]))
def test_every_command_of_the_table_is_one(row: list[str]) -> None:
    if row[2] != "–":
        (command,) = re.findall(r"^`mpijob (.*)`$", row[2])
        assert complaint(shlex.split(command)) == ""


@pytest.mark.req("FR-SDK-004")
def test_every_method_of_the_kubeflow_client_is_in_the_table() -> None:
    assert [row[0].strip("`") for row in rows("SDK")] == sorted(
        KUBEFLOW["methods"], key=[row[0].strip("`") for row in rows("SDK")].index
    )
    assert {row[0].strip("`") for row in rows("SDK") if row[1] == "–"} == NOT_JOBS


@pytest.mark.req("FR-SDK-004")
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_verbs_about_jobs_have_the_kubeflow_names_and_their_first_parameters(kind: type) -> None:
    for ours, theirs in ((row[1].strip("`"), row[0].strip("`")) for row in rows("SDK") if row[1] != "–"):
        params = list(inspect.signature(getattr(kind, ours)).parameters)[1:]
        if ours == theirs and KUBEFLOW["methods"][theirs][:1] == ["name"]:
            assert params[0] == "name"
        if theirs == "wait_for_job_status":
            assert params[:3] == KUBEFLOW["methods"][theirs][:3]


def a_client() -> Client:
    script = Script(jobs={"bad": Outcome(exit_code=3)})
    return Client(MemoryBackend(script=script), settings=Settings())


@pytest.mark.req("FR-SDK-004")
def test_a_script_written_for_the_kubeflow_sdk_reads_the_same_here() -> None:
    with a_client() as client:
        client.submit(MPIJob(name="good", workers=2, command=("echo", "x")))
        done = client.wait_for_job_status("good", status={"Complete"}, timeout=60)
        assert done.phase is Phase.SUCCEEDED
        assert client.get_job("good").name == "good"
        assert [state.ref.name for state in client.list_jobs()] == ["good"]
        assert client.get_job_events("good")[-1].reason == "Succeeded"
        client.delete_job("good")
        assert client.list_jobs() == []


@pytest.mark.req("FR-SDK-004")
def test_a_failed_job_and_a_word_that_is_no_status_are_errors() -> None:
    with a_client() as client:
        client.submit(MPIJob(name="bad", workers=2, command=("false",)))
        assert client.wait_for_job_status("bad", {"Failed"}).phase is Phase.FAILED
        with pytest.raises(JobFailed):
            client.wait_for_job_status("bad")
        with pytest.raises(InvalidJob, match="'Completed' is not a status"):
            client.wait_for_job_status("bad", {"Completed"})


@pytest.mark.req("FR-SDK-004", "FR-SDK-003")
def test_the_same_verbs_are_coroutines_of_the_async_client() -> None:
    async def use() -> tuple[Phase, int, str]:
        async with AsyncClient(MemoryBackend(), settings=Settings()) as client:
            await client.submit(MPIJob(name="good", workers=2, command=("echo", "x")))
            state = await client.wait_for_job_status("good", {"Complete"}, 60)
            events = await client.get_job_events("good")
            return state.phase, len(await client.list_jobs()), events[-1].reason

    assert asyncio.run(use()) == (Phase.SUCCEEDED, 1, "Succeeded")
