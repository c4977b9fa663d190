"""What reaches the audit: every act of every face, refusals too, and never a secret."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.unit.api_support import COOKIE, HOST, Browser
from tests.unit.cli_support import Cli

from mpijob import AsyncClient, Client, MPIJob
from mpijob.api.app import application
from mpijob.api.auth.sessions import CookieAuth
from mpijob.api.request_context import AppState
from mpijob.backends.memory import MemoryBackend
from mpijob.client.audit.recorder import audit_directory
from mpijob.errors import BackendError, InvalidJob, MpiJobError, NotFound
from mpijob.history.audit import verify_chain
from mpijob.model import Identity, Quota
from mpijob.model.status.audit import RECEIVED, AuditEvent, AuditQuery
from mpijob.settings import Settings

pytestmark = pytest.mark.req("FR-026", "FR-SEC-001", "FR-SEC-002", "C-audit")


class Audited(MemoryBackend):
    """The simulated engine under a name that has an audit."""

    name = "local"  # a plain attribute is a property as good


def a_client(home: Path, backend: MemoryBackend | None = None, **settings: Any) -> Client:
    return Client(backend or Audited(), settings=Settings(home=str(home), **settings))


def a_job(name: str = "bert", **fields: Any) -> MPIJob:
    fields.setdefault("command", ("echo", "hello"))
    return MPIJob(name=name, workers=2, **fields)


def told(client: Client | AsyncClient, **wanted: Any) -> list[tuple[str, str, int]]:
    backend, settings = client.backend, client.settings
    events = Client(backend, settings=settings).audit(AuditQuery(**wanted))
    return [(event.verb, name_of(event), code_of(event)) for event in events]


def name_of(event: AuditEvent) -> str:
    return event.object_ref.name if event.object_ref else ""


def code_of(event: AuditEvent) -> int:
    return event.response_status.code if event.response_status else 0


def test_every_act_leaves_who_what_which_and_with_what_result(tmp_path: Path) -> None:
    client = a_client(tmp_path, Audited(who=Identity("jane", groups=("cv",))))
    job = client.run(a_job(image="repo/train:1"))
    list(job.logs(workers=(1,)))
    job.retry()
    client.clone("bert", "bigger", workers=4, env={"LR": "0.1"})
    client.cancel("bigger")
    client.delete("bert")
    with pytest.raises(NotFound):
        client.delete("nobody")
    assert told(client) == [
        ("create", "bert", 201),
        ("logs", "bert", 200),
        ("retry", "bert", 200),
        ("clone", "bigger", 200),
        ("cancel", "bigger", 200),
        ("delete", "bert", 200),
        ("delete", "nobody", 404),
    ]
    create, logs, _, clone, cancel, delete, _ = client.audit()
    assert (create.user.username, create.user.groups) == ("jane", ("cv",))
    assert (create.note("image"), create.note("workers"), create.note("memory")) == (
        "repo/train:1",
        "2",
        "1Gi",
    )
    assert logs.note("workers") == "1"
    assert clone.note("changed") == "env.LR; name; workers: 2 → 4"
    assert cancel.note("phase") in ("Cancelled", "Succeeded")
    assert delete.note("phase")
    assert create.source_ips
    assert create.user_agent.startswith("mpijob/")


def test_a_suspended_and_resumed_job_is_told_of(tmp_path: Path) -> None:
    client = a_client(tmp_path)
    client.submit(a_job("long", command=("sleep", "1000")))
    client.suspend("long")
    client.resume("long")
    assert [verb for verb, _, _ in told(client)] == ["create", "suspend", "resume"]


def test_refusals_are_written_with_their_reason(tmp_path: Path) -> None:
    quota = {"default": Quota(namespace="default", gpus=1)}
    client = a_client(tmp_path, Audited(quotas=quota))
    with pytest.raises(InvalidJob):
        client.submit(a_job("wrong").replace(workers=0))
    with pytest.raises(MpiJobError):
        client.submit(a_job("large", resources={"gpu": 8}))
    client.run(a_job("done"))
    with pytest.raises(MpiJobError):
        client.clone("done", "worse", workers=5000)
    assert told(client, refused=True) == [
        ("create", "wrong", 400),
        ("create", "large", 409),
        ("clone", "worse", 400),
    ]
    large = client.audit(AuditQuery(jobs=("large",)))[0].response_status
    assert large is not None
    assert (large.reason, "quota" in large.message) == ("QUOTA_EXCEEDED", True)


def test_a_change_names_the_job_and_its_parameters(tmp_path: Path) -> None:
    client = a_client(tmp_path)
    client.run(a_job())
    client.clone("bert", replace=True, workers=3)
    change = client.audit()[-1]
    assert (change.verb, change.note("of"), change.note("changed")) == ("change", "bert", "workers: 2 → 3")


def test_a_look_at_the_same_lines_is_told_once(tmp_path: Path) -> None:
    client = a_client(tmp_path)
    job = client.run(a_job())
    for _ in range(3):
        list(job.logs(ranks=(0,)))
    list(job.logs(ranks=(1,)))
    assert [event.note("ranks") for event in client.audit(AuditQuery(verbs=("logs",)))] == ["0", "1"]


def test_lines_that_are_not_there_are_a_refused_look(tmp_path: Path) -> None:
    client = a_client(tmp_path)
    with pytest.raises(NotFound):
        list(client.logs("nobody"))
    assert told(client) == [("logs", "nobody", 404)]


def test_a_file_that_is_fetched_is_told_and_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    client = a_client(tmp_path)
    client.run(a_job())
    with pytest.raises(MpiJobError):
        client.fetch("bert", tmp_path, ("nothing.txt",))
    (event,) = client.audit(AuditQuery(verbs=("fetch",)))
    assert (event.note("path"), event.refused) == ("nothing.txt", True)


def test_the_async_client_tells_the_same(tmp_path: Path) -> None:
    client = AsyncClient(Audited(), settings=Settings(home=str(tmp_path)))

    async def act() -> None:
        job = await client.run(a_job())
        assert [line async for line in job.logs()]
        with pytest.raises(InvalidJob):
            await client.submit(a_job("wrong").replace(workers=0))
        await job.delete()
        assert len(await client.audit()) == 4
        assert (await client.verify_audit()).sound

    asyncio.run(act())
    assert [verb for verb, _, _ in told(client)] == ["create", "logs", "create", "delete"]


def test_one_whose_engine_dies_in_the_middle_leaves_a_request_without_a_result(tmp_path: Path) -> None:
    source = f"""
import os, signal
from mpijob import Client, MPIJob
from mpijob.backends.memory import MemoryBackend
from mpijob.settings import Settings
class Killing(MemoryBackend):
    name = "local"
    def submit(self, plan, who):
        os.kill(os.getpid(), signal.SIGKILL)
Client(Killing(), settings=Settings(home={str(tmp_path)!r})).submit(MPIJob(name="cut", workers=1, command=("true",)))
"""
    assert subprocess.run([sys.executable, "-c", source], timeout=60).returncode == -9
    (event,) = a_client(tmp_path).audit()
    assert (event.stage, event.verb, name_of(event)) == (RECEIVED, "create", "cut")
    assert a_client(tmp_path).verify_audit().sound


# -- when it cannot be written ---------------------------------------------------------------------
def spoiled(home: Path) -> None:
    place = home / "history" / "local"
    place.mkdir(parents=True)
    (place / "audit").write_text("not a directory")


def test_an_act_that_cannot_be_recorded_happens_and_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoiled(tmp_path)
    client = a_client(tmp_path)
    client.run(a_job())
    client.delete("bert")
    assert "not recorded: create bert" in caplog.text
    assert "not recorded: delete bert" in caplog.text


def test_where_recording_is_required_nothing_happens_unrecorded(tmp_path: Path) -> None:
    spoiled(tmp_path)
    client = a_client(tmp_path, audit="required")
    with pytest.raises(BackendError, match="audit logging is required"):
        client.submit(a_job())
    with pytest.raises(NotFound):
        client.get("bert")


def test_an_audit_that_is_off_writes_nothing(tmp_path: Path) -> None:
    client = a_client(tmp_path, audit="off")
    client.run(a_job())
    assert not Path(audit_directory(client.backend, client.settings)).exists()


# -- faces ------------------------------------------------------------------------------------------
class AuditedCli(Cli):
    def __init__(self, home: Path) -> None:
        super().__init__(Audited(), home=str(home))


def test_the_command_line_shows_filters_and_exports(tmp_path: Path) -> None:
    cli = AuditedCli(tmp_path)
    cli.finished("bert")
    cli.ok("delete", "bert", "--yes")
    assert [line.split()[3] for line in cli.ok("audit").splitlines()] == ["VERB", "create", "logs", "delete"]
    assert len(cli.ok("audit", "--verb", "delete", "--user", "me").splitlines()) == 2
    lines = [json.loads(line) for line in cli.ok("audit", "list", "--job", "bert", "-o", "json").splitlines()]
    assert {line["apiVersion"] for line in lines} == {"audit.k8s.io/v1"}
    header, *rows = cli.ok("audit", "-o", "csv").splitlines()
    assert header.startswith("time,user,source,verb,namespace,job,uid,code,reason")
    assert len(rows) == 3


def test_verify_ends_with_one_when_somebody_changed_a_line(tmp_path: Path) -> None:
    cli = AuditedCli(tmp_path)
    cli.finished("bert")
    head = cli.ok("audit", "verify").splitlines()[-1].removeprefix("head: ")
    assert cli.ok("audit", "verify", "--anchor", head)
    (file,) = (tmp_path / "history" / "local" / "audit").glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"me"', b'"bob"', 1))
    result = cli("audit", "verify")
    assert (result.exit_code, "entry 1 was modified" in result.stdout) == (1, True)
    assert cli("audit", "verify", "--anchor", "nonsense").exit_code == 2


@contextmanager
def page(home: Path, who: Identity) -> Iterator[Browser]:
    client = AsyncClient(Audited(who=who), settings=Settings(home=str(home)))
    room = AppState(client, CookieAuth(who.user, [HOST], cookie=COOKIE))
    with TestClient(application(room), base_url=f"http://{HOST}") as http:
        yield Browser(room, http)


def test_the_pages_server_shows_all_to_administrators_and_ones_own_to_others(tmp_path: Path) -> None:
    for who in (Identity("jane"), Identity("root", administrator=True)):
        with page(tmp_path, who) as browser:
            assert browser.get("/audit").status_code == 401
            browser.sign_in().create(f"of-{who.user}")
            answer = browser.get("/audit").json()
        seen = {one["objectRef"]["name"] for one in answer["items"]}
        if who.administrator:
            assert (seen, answer["own"]) == ({"of-jane", "of-root"}, False)
        else:
            assert (seen, answer["own"]) == ({"of-jane"}, True)
    assert answer["items"][0]["sourceIPs"] == ["testclient"]
    assert answer["items"][0]["userAgent"].startswith("page; ")


def test_a_look_through_the_page_is_told_from_where_it_came(tmp_path: Path) -> None:
    with page(tmp_path, Identity("jane")) as browser:
        browser.sign_in().create("bert", "echo hello")
        browser.get("/trainjobs/default/bert/logs?follow=true")
        seen = {entry["verb"]: entry for entry in browser.get("/audit").json()["items"]}
    assert seen["logs"]["sourceIPs"] == seen["create"]["sourceIPs"] == ["testclient"]
    assert seen["logs"]["userAgent"].startswith("page; ")


# -- secrets ----------------------------------------------------------------------------------------
CANARY = "canary-7f3a9e"


@pytest.mark.security
@pytest.mark.req("D-sanitize")
def test_nothing_of_a_secret_is_in_the_audit_whatever_is_done(tmp_path: Path) -> None:
    client = a_client(tmp_path)
    env = {"API_TOKEN": f"{CANARY}-token", "PLAIN": f"{CANARY}-plain"}
    argv = ("sh", "-c", f"echo {CANARY}-arg", "--password", f"{CANARY}-option")
    client.run(a_job("leaky", env=env, command=argv))
    client.clone("leaky", "copy", env={"API_TOKEN": f"{CANARY}-other"}, args=(f"{CANARY}-arg",))
    wrong: tuple[dict[str, Any], ...] = ({"workers": 0}, {"env": {"A B": f"{CANARY}-name"}}, {"mpi": "none"},
        {"image": f"https://u:{CANARY}-pass@host/x y", "workers": 0})  # fmt: skip
    for broken in wrong:
        with pytest.raises(MpiJobError):
            client.submit(a_job("refused", env=env, command=argv).replace(**broken))
    with pytest.raises(MpiJobError):
        client.execute("nobody", ("curl", "-H", f"Authorization: Bearer {CANARY}-header"))
    directory = Path(audit_directory(client.backend, client.settings))
    written = b"".join(file.read_bytes() for file in directory.iterdir())
    assert b"curl" in written
    assert CANARY.encode() not in written
    assert verify_chain.verify(str(directory)).sound
