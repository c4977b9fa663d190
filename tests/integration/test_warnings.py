"""Early warnings of real jobs: provoked ones are told once, as events and in the state; healthy jobs have none."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mpijob import Client, Job, Phase
from mpijob.cli.context import App
from mpijob.cli.follow import FollowedState, Follower
from mpijob.cli.render import warning_lines
from mpijob.errors import Severity
from mpijob.model import Resources
from mpijob.settings import Settings

from .support import PATIENCE, a_job, eventually, running

pytestmark = [pytest.mark.engine, pytest.mark.req("PMV-013", "Q13")]

PYTHON = sys.executable
GROWS = "keep = []\nimport time\nwhile True:\n keep.append(b'x' * (2 << 20)); time.sleep(0.1)"
BOTH_WAIT = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(w.rank, flush=True); w.recv(source=1 - w.rank)"
WAITS = "from mpi4py import MPI; import time\nif MPI.COMM_WORLD.rank == 1: time.sleep(300)\nMPI.COMM_WORLD.Barrier()"
HANGS: dict[str, Any] = {"command": ("sh", "-c", f"echo begun; {PYTHON} -c '{WAITS}'"), "workers": 2}
TALKS = 'i=0; while [ "$MPIJOB_RANK" != 1 ] || [ $i -lt 12 ]; do echo step $i; i=$((i+1)); sleep 0.25; done; sleep 300'
HEALTHY = "i=0; while [ $i -lt 28 ]; do echo step $i; i=$((i+1)); sleep 0.25; done"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Return settings under which what lasts two seconds is worrying already."""
    return msgspec.structs.replace(settings, warn_after_seconds=2.0)


def warned(job: Job, code: str) -> None:
    """Wait until a warning is in the job's state, and check that it was told as an event, once."""
    (found, *_) = eventually(
        lambda: [finding for finding in job.warnings() if finding.code == code], f"{code} is told", PATIENCE
    )
    assert found.severity is Severity.WARNING
    assert found in job.state().findings
    reason = "".join(word.capitalize() for word in code.split("_"))
    told = [event for event in job.events() if event.reason == reason and event.worker == found.worker]
    assert [(event.severity, event.rank) for event in told if event.rank == found.rank] == [
        (Severity.WARNING, found.rank)
    ]


def test_memory_that_grows_is_told_before_the_limit_is_reached(client: Client) -> None:
    large = Resources(cpu="500m", memory="160Mi")
    job = running(client, a_job("grows", command=(PYTHON, "-c", GROWS), workers=1, resources=large))
    warned(job, "MEMORY_NEAR_LIMIT")
    assert job.state().phase is Phase.RUNNING


def test_a_rank_that_sleeps_while_the_others_wait_for_it_in_mpi_is_named(client: Client) -> None:
    job = running(client, a_job("waits", **HANGS))
    warned(job, "RANK_IDLE")
    assert [(finding.rank, finding.worker) for finding in job.warnings()] == [(1, 1)]


def test_a_rank_that_falls_silent_is_named(client: Client) -> None:
    job = running(client, a_job("talks", TALKS, workers=2, slots=2))
    warned(job, "RANK_SILENT")
    assert {finding.rank for finding in job.warnings()} == {1}


def test_a_healthy_job_is_left_in_peace_and_a_warning_goes_when_its_cause_does(client: Client) -> None:
    pauses = (
        "echo begun; while [ ! -e go ]; do sleep 0.2; done; while [ ! -e end ]; do echo on; sleep 0.2; done"
    )
    healthy = client.submit(a_job("healthy", HEALTHY, workers=2))
    pausing = running(client, a_job("pauses", pauses, workers=1))
    warned(pausing, "ALL_IDLE")
    work = Path(client.settings.home) / "jobs" / pausing.ref.uid / "work"
    (work / "go").touch()
    eventually(lambda: pausing.warnings() == (), "the warning is gone", PATIENCE)
    (work / "end").touch()
    assert pausing.wait(PATIENCE).phase is Phase.SUCCEEDED
    assert healthy.wait(PATIENCE).phase is Phase.SUCCEEDED
    assert [event for event in healthy.events() if event.severity is Severity.WARNING] == []
    assert healthy.state().findings == ()


@pytest.mark.req("AC3")
def test_a_job_that_hung_until_its_deadline_says_so_first(client: Client) -> None:
    job = client.submit(a_job("hangs", deadline_seconds=9.0, **HANGS))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    told = job.diagnose()
    hang, late = told.findings
    assert (hang.code, late.code) == ("HANG", "DEADLINE_EXCEEDED")
    assert "rank 1 on worker 1 was idle" in hang.message
    assert any("Rank 1 on worker 1 is idle" in line and "[RANK_IDLE]" in line for line in hang.evidence)
    assert told.fixes[0].command == "mpijob stacks hangs"
    assert told.summary.startswith("Failed: The job probably hung")


@pytest.mark.req("AC3")
def test_ranks_that_wait_for_each_other_in_mpi_are_told_as_silent_and_to_be_looked_at(client: Client) -> None:
    job = client.submit(a_job("dead", command=(PYTHON, "-c", BOTH_WAIT), deadline_seconds=13.0))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    told = job.diagnose()
    (late,) = told.findings
    assert (late.code, late.confidence) == ("DEADLINE_EXCEEDED", 0.5)
    assert re.search(
        r"no rank had written output in the last 1\d s: .* or waited for each other", late.message
    )
    assert told.fixes[0].command == "mpijob stacks dead"
    assert told.fixes[1].patch == {"deadline_seconds": 26.0}


def test_a_job_that_only_took_too_long_is_not_called_hung(client: Client) -> None:
    state = client.submit(a_job("slow", "while :; do echo on; sleep 0.2; done", deadline_seconds=6.0)).wait(
        PATIENCE
    )
    assert [finding.code for finding in state.findings] == ["DEADLINE_EXCEEDED"]


def test_run_says_while_it_follows_that_a_rank_hangs(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warning_lines, "LOOK_SECONDS", 0.2)
    app = App(connect=lambda _: client)
    job = client.submit(a_job("hangs", deadline_seconds=9.0, **HANGS))
    assert Follower(app, job, FollowedState()).to_the_end().phase is Phase.FAILED
    told = capsys.readouterr().err.partition("hangs Failed after")[0]
    assert told.count("hangs: warning: Rank 1 on worker 1 is idle") == 1
