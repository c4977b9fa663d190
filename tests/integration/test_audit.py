"""The audit of real jobs: what they were given, who looked, how they ended and what they took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpijob import Client, Phase
from mpijob.model.status.audit import AuditEvent, AuditQuery

from .support import PATIENCE, a_job, eventually, running

pytestmark = [pytest.mark.engine, pytest.mark.req("FR-026", "FR-SEC-002", "FR-SEC-003", "C-audit")]


def at_home(client: Client) -> dict[str, str]:
    return {**os.environ, "MPIJOB_HOME": client.settings.home, "MPIJOB_ENGINE": "local"}


def end_of(client: Client, name: str) -> AuditEvent:
    def look() -> tuple[AuditEvent, ...]:
        return client.audit(AuditQuery(jobs=(name,), verbs=("end",)))

    return eventually(look, f"the end of {name} in the audit")[-1]


@pytest.mark.req("Q-OBS-003", "C-exec")
def test_a_jobs_life_is_in_the_audit_with_what_it_took(client: Client) -> None:
    job = running(client, a_job("life", "until [ -e go ]; do sleep 0.05; done"))
    job.execute(("true",), worker=0)
    job.stacks()
    (Path(client.settings.home) / "jobs" / job.ref.uid / "work" / "go").touch()
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED
    list(job.logs(workers=(1,)))
    end = end_of(client, "life")
    job.delete()
    verbs = [event.verb for event in client.audit(AuditQuery(jobs=("life",)))]
    assert sorted(verbs) == sorted(["create", "exec", "stacks", "logs", "end", "delete"])
    assert (end.note("phase"), end.user.username) == ("Succeeded", "system:mpijob:engine")
    seconds = float(end.note("seconds"))
    assert seconds > 0.0
    held = 2 * 0.5 + 0.1  # two workers of half a core, and the launcher
    assert float(end.note("core-hours")) == pytest.approx(seconds * held / 3600, rel=0.01, abs=2e-6)
    assert client.verify_audit().sound


def test_an_attempt_that_failed_and_one_that_was_cancelled_are_told_with_their_ends(client: Client) -> None:
    client.submit(a_job("bad", "exit 3")).wait(PATIENCE)
    assert end_of(client, "bad").note("phase") == "Failed"
    running(client, a_job("long", "sleep 100")).cancel()
    assert end_of(client, "long").note("phase") == "Cancelled"


def test_a_refused_job_never_was_and_is_told(client: Client) -> None:
    words = [
        sys.executable,
        "-m",
        "mpijob",
        "create",
        "huge",
        "--workers",
        "2",
        "--memory",
        "900Ti",
        "--",
        "true",
    ]
    assert subprocess.run(words, capture_output=True, timeout=60, env=at_home(client)).returncode == 5
    (refused,) = client.audit(AuditQuery(jobs=("huge",)))
    assert refused.response_status is not None
    assert (refused.response_status.code, refused.response_status.reason) == (409, "QUOTA_EXCEEDED")
