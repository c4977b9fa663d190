"""The audit of real jobs: what they were given, who looked, how they ended and what they took; and no secret."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpijob import Client, Phase
from mpijob.client.witness import audit_directory
from mpijob.model import Secret
from mpijob.model.audit import AuditEvent, AuditQuery

from .support import PATIENCE, a_job, eventually, running

pytestmark = [pytest.mark.engine, pytest.mark.req("FR-026", "FR-SEC-002", "FR-SEC-003", "C-audit")]
CANARY = "canary-91c4d7"


def at_home(client: Client) -> dict[str, str]:
    return {**os.environ, "MPIJOB_HOME": client.settings.home, "MPIJOB_ENGINE": "local"}


def end_of(client: Client, name: str) -> AuditEvent:
    def look() -> tuple[AuditEvent, ...]:
        return client.audit(AuditQuery(jobs=(name,), verbs=("end",)))

    return eventually(look, f"the end of {name} in the audit")[-1]


@pytest.mark.req("Q-OBS-003", "C-exec")
def test_a_jobs_life_is_in_the_audit_with_what_it_took(client: Client) -> None:
    job = running(client, a_job("life", "sleep 2"))
    job.execute(("true",), worker=0)
    job.stacks()
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED
    list(job.logs(workers=(1,)))
    end = end_of(client, "life")
    job.delete()
    verbs = [event.verb for event in client.audit(AuditQuery(jobs=("life",)))]
    assert sorted(verbs) == sorted(["create", "exec", "stacks", "logs", "end", "delete"])
    assert (end.note("phase"), end.user.username) == ("Succeeded", "system:mpijob:engine")
    seconds = float(end.note("seconds"))
    assert seconds >= 2.0
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


SPEAKS = """
echo "$API_TOKEN and $WANDB"
if [ "$MPIJOB_RANK" = 1 ]; then echo "fatal: $WANDB" >&2; exit 3; fi
sleep 60
"""
SHOWN = (
    ("describe",), ("why",), ("events",), ("get", "-o", "json"), ("export",), ("logs",), ("describe", "-o", "json"),
    ("why", "-o", "json"), ("list", "-o", "json"), ("audit", "-o", "json"), ("audit", "-o", "csv"), ("audit",),
)  # fmt: skip


@pytest.mark.security
@pytest.mark.req("D-sanitize")
def test_planted_secrets_are_in_no_output(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_SOURCE", f"{CANARY}-source")
    secrets = (Secret(env="WANDB", source="env:THE_SOURCE"),)
    job = client.submit(a_job("leaky", SPEAKS, env={"API_TOKEN": f"{CANARY}-env"}, secrets=secrets))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    end_of(client, "leaky")
    shown = {}
    for words in SHOWN:
        name = () if words[0] in ("list", "audit") else ("leaky",)
        argv = [sys.executable, "-m", "mpijob", words[0], *name, *words[1:]]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=at_home(client))
        shown[words] = done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
    shown["page",] = asyncio.run(_page(client))
    files = Path(audit_directory(client.backend, client.settings)).iterdir()
    shown["files",] = "".join(file.read_text() for file in files)
    assert {words for words, output in shown.items() if CANARY in output} == set()
    assert "leaky" in shown["audit",]


async def _page(client: Client) -> str:
    """Return what the page's server says of the job and of the audit."""
    from starlette.testclient import TestClient
    from tests.unit.api_support import COOKIE, HOST, Browser

    from mpijob import AsyncClient
    from mpijob.api.app import application
    from mpijob.api.asking import Room
    from mpijob.api.gate import Gate

    def ask() -> str:
        room = Room(AsyncClient(settings=client.settings), Gate("me", [HOST], cookie=COOKIE))
        with TestClient(application(room), base_url=f"http://{HOST}") as http:
            browser = Browser(room, http).sign_in()
            paths = ("/trainjobs/leaky", "/trainjobs/leaky/events", "/trainjobs/leaky/why", "/audit")
            answers = [browser.get(path) for path in paths]
        assert [answer.status_code for answer in answers] == [200] * len(paths)
        return json.dumps([answer.json() for answer in answers])

    return await asyncio.to_thread(ask)
