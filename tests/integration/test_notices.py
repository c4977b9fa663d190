"""Notices of real jobs: `mpijob notifier` beside the local engine, a real mail server and a chat's webhook."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.mail_server import mail_server
from tests.servers import process
from tests.unit.receiving import receiving

from mpijob import Client, Phase
from mpijob.errors import InvalidJob
from mpijob.model import Retry
from mpijob.model.spec.job import Notify
from mpijob.settings import CallbackSetting, Settings

from .support import a_job, emptied_client, eventually

pytestmark = pytest.mark.engine
SETTINGS = """
[[callbacks]]
url = "smtp://127.0.0.1:{port}"
sender = "mpijob@example.org"
domains = ["example.org"]
allow_private = true

[[callbacks]]
name = "team-chat"
url = "{chat}"
shape = "teams"
phases = []
allow_private = true
"""


@pytest.mark.req("PMV-006")
def test_people_are_told_what_becomes_of_their_jobs_and_nothing_else(tmp_path: Path) -> None:
    cards: list[Any] = []

    def take(path: str, headers: dict[str, str], content: bytes) -> int:
        cards.append(json.loads(content)["attachments"][0]["content"]["body"][0]["text"])
        return 200

    with mail_server() as (port, mails), receiving(take) as chat:
        place = tmp_path / "config" / "mpijob"
        place.mkdir(parents=True)
        (place / "settings.toml").write_text(SETTINGS.format(port=port, chat=chat))
        callbacks = (
            CallbackSetting(url="smtp://x", domains=("example.org",)),
            CallbackSetting(url=chat, name="team-chat"),
        )
        settings = Settings(home=str(tmp_path / "home"), cores=4.0, memory="4Gi", gpus=0, callbacks=callbacks)
        environ = os.environ | {"XDG_CONFIG_HOME": str(tmp_path / "config"), "MPIJOB_HOME": settings.home}
        argv = (sys.executable, "-m", "mpijob", "notifier", "--all-namespaces")
        with emptied_client(settings) as client, process(*argv, log=tmp_path / "notifier.log", env=environ):
            _submit(client)
            eventually(lambda: len(mails) >= 2 and len(cards) >= 2, "both people are told")
            done = [client.state(name) for name in ("good", "bad", "silent")]
    assert [state.phase for state in done] == [Phase.SUCCEEDED, Phase.FAILED, Phase.SUCCEEDED]
    told = sorted((mail.to[0], str(mail.message["Subject"]).partition(":")[2][:24]) for mail in mails)
    assert [(to, text.split()[:2]) for to, text in told] == [
        ("ann@example.org", ["default/good", "Succeeded:"]),
        ("bob@example.org", ["default/bad", "Failed:"]),
    ]
    assert [text.split()[0] for text in cards] == ["default/bad", "default/bad"]
    assert "Failed:" in cards[-1], "tried again first, its end last"
    assert "Failed:" not in cards[0]


def _submit(client: Client) -> None:
    ann, bob = Notify(to="ann@example.org"), Notify(to="bob@example.org", on=("failed",))
    chat = Notify(to="team-chat", on=("retried", "ended"))
    again = Retry(limit=1, backoff_seconds=2)
    jobs = [
        client.submit(a_job("good", "sleep 1", notify=(ann, Notify(to="bob@example.org", on=("failed",))))),
        client.submit(a_job("bad", "sleep 1; exit 3", retry=again, notify=(bob, chat))),
        client.submit(a_job("silent", "true")),
    ]
    for job in jobs:
        job.wait(180)


@pytest.mark.parametrize("to", ["ann@elsewhere.org", "unknown"])
def test_whom_no_callback_of_this_machine_reaches_is_refused_at_once(tmp_path: Path, to: str) -> None:
    settings = Settings(
        home=str(tmp_path / "home"), callbacks=(CallbackSetting(url="smtp://x", domains=("example.org",)),)
    )
    with emptied_client(settings) as client:
        with pytest.raises(InvalidJob, match="the notification would be lost") as refused:
            client.submit(a_job(notify=(Notify(to=to),)))
        assert [one.field for one in refused.value.findings] == ["notify[0].to"]
        assert client.list().total == 0
