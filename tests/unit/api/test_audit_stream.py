"""The page's audit: from where somebody came, who read what is gone, a copy elsewhere, and where it is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient
from tests.unit.api_support import COOKIE, HOST, Browser
from tests.unit.api_town import Person, Seat, Town, at
from tests.unit.client.test_audit_recorder import Audited
from tests.unit.client.test_audit_verbs import Able, remembered

from mpijob import AsyncClient
from mpijob.api.app import application
from mpijob.api.auth.client_address import Proxies
from mpijob.api.auth.cluster_token import TokenAuth
from mpijob.api.auth.sessions import CookieAuth
from mpijob.api.live import audit_stream
from mpijob.api.request_context import AppState
from mpijob.client.audit.recorder import audit_directory
from mpijob.client.multiuser.sessions import SessionStore
from mpijob.history.audit import audit_anchor, verify_chain
from mpijob.history.audit.audit_anchor import Anchors
from mpijob.history.audit.audit_log import AuditLog
from mpijob.history.audit.chain import Head, read_head
from mpijob.model.status.audit import COMPLETE, AuditEvent, User, stamp
from mpijob.settings import Settings

pytestmark = pytest.mark.security

DEPLOY = Path(__file__).parents[3] / "deploy"


# -- from where -------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("trusted", "header", "told"),
    [
        ((), "1.2.3.4", ["10.0.0.9"]),
        ((), "", ["10.0.0.9"]),
        (("10.0.0.9",), "1.2.3.4", ["1.2.3.4", "10.0.0.9"]),
        (("10.0.0.0/8",), "6.6.6.6, 1.2.3.4, 10.7.7.7", ["1.2.3.4", "10.7.7.7", "10.0.0.9"]),
        (("10.0.0.9",), "root\", \"x", ["10.0.0.9"]),
        (("192.168.0.0/16",), "1.2.3.4", ["10.0.0.9"]),
    ],
)  # fmt: skip
def test_only_a_trusted_proxy_says_for_whom_it_asks(
    tmp_path: Path, trusted: tuple[str, ...], header: str, told: list[str]
) -> None:
    settings = Settings(home=str(tmp_path), trusted_proxies=trusted)
    room = AppState(AsyncClient(Audited(), settings=settings), CookieAuth("me", [HOST], cookie=COOKIE))
    with TestClient(application(room), base_url=f"http://{HOST}", client=("10.0.0.9", 5000)) as http:
        browser = Browser(room, http).sign_in()
        http.headers["x-forwarded-for"] = header
        browser.create("bert")
        assert browser.get("/audit").json()["items"][0]["sourceIPs"] == told


def test_a_chain_of_proxies_is_read_from_its_near_end() -> None:
    proxies = Proxies(("10.0.0.0/8",))
    long = ", ".join(["6.6.6.6"] * 1000 + ["1.2.3.4"])
    assert proxies.forwarded_for("10.0.0.1", long) == ("1.2.3.4", "10.0.0.1")
    assert proxies.forwarded_for("1.1.1.1", "10.0.0.1") == ("1.1.1.1",)


# -- what is gone -----------------------------------------------------------------------------------
@pytest.fixture
def town(tmp_path: Path) -> Iterator[tuple[Person, Path]]:
    """Somebody at a cluster's page whose engine knows no job, and whose record knows one."""
    engine = Able()
    engine.record = str(tmp_path / "record")
    remembered(tmp_path / "record")
    town = Town()
    town.engine = engine
    town.people = {"ann-token": ("ann", frozenset({"team"}))}
    settings = Settings(home=str(tmp_path / "home"), namespace="team")
    guests = SessionStore(settings, lambda token: Seat(town, token))
    room = AppState(AsyncClient(engine, settings=settings), TokenAuth(["mpijob.apps.example.com"], guests))
    with at(room) as http:
        yield Person(http, "ann-token"), tmp_path / "home"


@pytest.mark.thorough
@pytest.mark.parametrize("asked", ["logs", "logs?format=text", "logs?follow=true"])
def test_reading_the_lines_of_a_job_that_is_gone_through_the_page_is_told(
    town: tuple[Person, Path], asked: str
) -> None:
    ann, home = town
    answer = ann.get(f"/trainjobs/team/bert/{asked}")
    assert answer.status_code == 200
    assert "line 2" in answer.text
    lines = [json.loads(line) for path in home.rglob("audit-*.jsonl") for line in path.open()]
    (look,) = [one for one in lines if one["annotations"].get("mpijob.dev/source") == "record"]
    assert (look["verb"], look["user"]["username"], look["objectRef"]["name"]) == ("logs", "ann", "bert")
    assert look["responseStatus"]["code"] == 200
    assert look["userAgent"].startswith("page; ")


# -- elsewhere --------------------------------------------------------------------------------------
def an_event(number: int = 1) -> AuditEvent:
    now = stamp(1_800_000_000.0 + number)
    return AuditEvent(
        audit_id=f"a{number}", stage=COMPLETE, verb="create", user=User(username="ann"), time=now
    )


def test_a_server_writes_each_line_and_its_anchors_to_its_standard_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trail = AuditLog(str(tmp_path), keep_days=90)
    trail.add(an_event(1))

    async def story() -> Head:
        with audit_stream.copied(str(tmp_path)):
            await asyncio.sleep(0)
            return trail.add(an_event(2))

    head = asyncio.run(story())
    trail.add(an_event(3))
    first, line, last = [json.loads(one) for one in capfd.readouterr().out.splitlines()]
    assert (first["kind"], first["head"].partition(":")[0]) == ("AuditAnchor", "1")
    assert (line["auditID"], line["annotations"]["mpijob.dev/hash"]) == ("a2", head.hash)
    assert last["head"] == str(head)
    anchor = verify_chain.parse_anchor(last["head"])
    assert verify_chain.verify(str(tmp_path), anchor).sound


def test_a_chain_that_was_written_anew_does_not_have_the_anchor(tmp_path: Path) -> None:
    told: list[bytes] = []
    trail = AuditLog(str(tmp_path / "one"), keep_days=90)
    for number in (1, 2, 3):
        trail.add(an_event(number))
    anchors = Anchors(str(tmp_path / "one"), told.append)
    anchors.write_anchor()
    anchors.write_anchor()
    assert len(told) == 1, "nothing was added since"
    other = AuditLog(str(tmp_path / "two"), keep_days=90)
    for number in (1, 3, 4):
        other.add(an_event(number))
    anchor = verify_chain.parse_anchor(json.loads(told[0])["head"])
    assert verify_chain.verify(str(tmp_path / "two")).sound
    assert not verify_chain.verify(str(tmp_path / "two"), anchor).sound


def test_the_systems_log_is_told_once_a_day_how_far_the_chain_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Head]] = []
    monkeypatch.setattr(audit_anchor, "write_syslog", lambda directory, head: told.append((directory, head)))
    trail, day = AuditLog(str(tmp_path), keep_days=90), 86_400
    trail.add(an_event(0))
    last = trail.add(an_event(1))
    trail.add(an_event(day))
    trail.add(an_event(day + 1))
    assert told == [(str(tmp_path), last)]
    assert read_head(str(tmp_path))[0].sequence == 4


# -- where it is kept -------------------------------------------------------------------------------
@pytest.mark.parametrize("folder", ["base/page", "openshift/page"])
def test_the_audit_of_the_page_is_on_and_outlives_its_pod(folder: str) -> None:
    documents = [one for one in yaml.safe_load_all((DEPLOY / folder / "service.yaml").read_text()) if one]
    by_kind: dict[str, Any] = {one["kind"]: one for one in documents}
    spec = by_kind["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    (page,) = (one for one in pod["containers"] if one["name"] == "page")
    env = {one["name"]: one.get("value") for one in page["env"]}
    assert env.get("MPIJOB_AUDIT", "on") != "off"
    home = Path(env["MPIJOB_HOME"] or "")
    (mount,) = (one["name"] for one in page["volumeMounts"] if home.is_relative_to(one["mountPath"]))
    (volume,) = (one for one in pod["volumes"] if one["name"] == mount)
    claim = by_kind["PersistentVolumeClaim"]["metadata"]["name"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate"), (
        "the claim is one node's at a time"
    )
    budget = by_kind["PodDisruptionBudget"]["spec"]
    assert budget.get("maxUnavailable") == 1, "a node with the only page on it can be drained"


def test_the_audit_lies_where_the_page_keeps_its_things(tmp_path: Path) -> None:
    settings = Settings(home=str(tmp_path), engine="kubernetes")
    assert Path(audit_directory(Able(), settings)).is_relative_to(tmp_path)
