"""Notices: who is told of which change of a job, and in which shape."""

from __future__ import annotations

import json
import logging
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from tests.mail_server import mail_server
from tests.unit.history_support import a_state
from tests.unit.kube_support import make_certificates

from mpijob import MPIJob
from mpijob.client.integrations import notices
from mpijob.client.integrations.notices import Delivery
from mpijob.client.integrations.webhooks import FIRST_SECONDS, Outbox
from mpijob.errors import BackendError, Finding, InvalidJob
from mpijob.model import Phase
from mpijob.model.spec.job import Notify
from mpijob.outbound import smtp
from mpijob.settings import CallbackSetting

MAIL = CallbackSetting(
    url="smtp://127.0.0.1:25", name="mail", sender="mpijob@example.org", domains=("Example.org",), allow_private=True
)  # fmt: skip
CHAT = CallbackSetting(url="https://chat.example.com/x", name="chat", shape="slack", phases=())
HOSTILE = "<!everyone> & [free](https://evil.example)\r\nBcc: all@example.org"


def failed(**more: Any) -> Any:
    cause = Finding("OOM_KILLED", "out of memory", hint="use more memory")
    return a_state(phase=Phase.FAILED, finished=1_700_000_090.0, **{"findings": (cause,)} | more)


def told(setting: CallbackSetting, state: Any, *wishes: Notify) -> list[Delivery]:
    return [*notices.deliveries(setting, state, wishes)]


@pytest.mark.req("PMV-006")
def test_a_job_names_whom_to_tell_and_at_which_moments() -> None:
    ann = Notify(to="ann@example.org", on=("started", "failed"))
    assert told(MAIL, a_state(phase=Phase.QUEUED), ann) == []
    assert told(MAIL, a_state(phase=Phase.RUNNING), ann) == [Delivery("Running", "ann@example.org")]
    assert told(MAIL, failed(), ann) == [Delivery("Failed", "ann@example.org")]
    assert told(MAIL, a_state(phase=Phase.SUCCEEDED), ann) == []
    assert told(CHAT, failed(), Notify(to="chat")) == [Delivery("Failed")]
    assert told(CHAT, failed(), ann) == []
    assert told(CHAT, failed()) == []


def test_two_moments_of_one_change_are_one_notice() -> None:
    both = Notify(to="ann@example.org", on=("failed", "ended"))
    assert told(MAIL, failed(), both, Notify(to="ann@example.org")) == [Delivery("Failed", "ann@example.org")]


def test_a_next_attempt_is_told_as_retried_whenever_it_is_seen() -> None:
    wish = Notify(to="chat", on=("queued", "retried"))
    for phase in (Phase.QUEUED, Phase.PENDING, Phase.RUNNING):
        assert told(CHAT, a_state(phase=phase, attempt=2), wish) == [Delivery("Retried")]
    assert told(CHAT, a_state(phase=Phase.QUEUED), wish) == [Delivery("Queued")]


@pytest.mark.security
@pytest.mark.parametrize(
    "to",
    ["ann@elsewhere.org", "ann@sub.example.org", "ann@x@elsewhere.org", "@example.org", "", "other",
     "ann@evil.org\n@example.org", "a\r\nBcc: b@example.org", "ann@example.org,eve@evil.org"],
)  # fmt: skip
def test_a_job_writes_no_mail_to_where_the_administrator_did_not_allow_it(to: str) -> None:
    assert told(MAIL, failed(), Notify(to=to)) == []


@pytest.mark.security
def test_a_callback_of_other_namespaces_is_not_lent_to_a_job() -> None:
    elsewhere = CallbackSetting(url=CHAT.url, name="chat", namespaces=("other",))
    assert told(elsewhere, failed(), Notify(to="chat")) == []
    assert notices.untaken([elsewhere], "team", [Notify(to="chat")]) == ["chat"]
    assert notices.untaken([elsewhere], "other", [Notify(to="chat")]) == []


def test_whom_nobody_may_tell_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox(str(tmp_path / "callbacks.db"), [CHAT], lambda: 1_700_000_100.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            outbox.offer(failed(), [Notify(to="ann@example.org")])
    assert [record.getMessage() for record in caplog.records] == [
        "job team/bert: no callback in the settings may notify ann@example.org"
    ]


@pytest.mark.req("PMV-006")
def test_teams_gets_an_adaptive_card_with_a_button() -> None:
    setting = CallbackSetting(url="https://t.example.com", shape="teams", page="https://page.example.com/")
    message = json.loads(notices.body(failed(owner="ann"), setting, "n1", 1.0))
    (attachment,) = message["attachments"]
    card = attachment["content"]
    assert (message["type"], attachment["contentType"]) == (
        "message",
        "application/vnd.microsoft.card.adaptive",
    )
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert card["body"][0]["text"] == "team/bert Failed: out of memory"
    assert {"title": "Owner", "value": "ann"} in card["body"][1]["facts"]
    assert card["actions"] == [
        {"type": "Action.OpenUrl", "title": "Open the job", "url": "https://page.example.com/jobs/team/bert"}
    ]


@pytest.mark.security
def test_a_jobs_message_mentions_nobody_and_makes_no_link_in_a_chat() -> None:
    state = failed(findings=(), message=HOSTILE)
    slack = json.loads(notices.body(state, CHAT, "n1", 1.0))["text"]
    assert "<!everyone>" not in slack
    assert "&lt;!everyone&gt; &amp; " in slack
    teams = notices.body(state, CallbackSetting(url="https://t.example.com", shape="teams"), "n1", 1.0)
    assert (
        r"\[free\]\(https://evil.example\)"
        in json.loads(teams)["attachments"][0]["content"]["body"][0]["text"]
    )


@pytest.mark.security
def test_a_jobs_message_writes_no_header_of_a_mail() -> None:
    content = notices.body(failed(findings=(), message=HOSTILE), MAIL, "n1", 1.0, "ann@example.org")
    mail = message_from_bytes(content, policy=default)
    assert mail["To"] == "ann@example.org"
    assert mail["Bcc"] is None
    assert "Bcc: all@example.org" in mail["Subject"]
    assert mail["Auto-Submitted"] == "auto-generated"


# -- a real mail server ------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates")).place


@pytest.mark.req("PMV-006")
def test_a_mail_arrives_and_one_that_was_refused_is_sent_again_with_the_same_id(tmp_path: Path) -> None:
    now = [1_700_000_100.0]
    with mail_server(refuse_first=1) as (port, mails):
        setting = CallbackSetting(
            url=f"smtp://127.0.0.1:{port}", sender="mpijob@example.org", to=("ops@example.org",),
            domains=("example.org",), allow_private=True,
        )  # fmt: skip
        outbox = Outbox(str(tmp_path / "callbacks.db"), [setting], lambda: now[0])
        outbox.offer(failed(), [Notify(to="ann@example.org")])
        assert outbox.work() == 1  # the other was refused for now
        now[0] += FIRST_SECONDS + 0.1
        assert outbox.work() == 1
        outbox.offer(failed(), [Notify(to="ann@example.org")])
        assert outbox.work() == 0
    assert {mail.to for mail in mails} == {("ann@example.org",), ("ops@example.org",)}
    assert len(mails) == len({mail.message["Message-ID"] for mail in mails}) == 2
    assert mails[0].message["Subject"] == "mpijob: team/bert Failed: out of memory"
    assert mails[0].text.splitlines() == ["team/bert Failed: out of memory", "use more memory"]


@pytest.mark.filterwarnings("ignore:Requiring AUTH:UserWarning")  # TLS from the beginning is not seen as such
@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_mail_goes_encrypted_to_a_server_that_wants_a_login(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "ca.crt"))
    pair = (certificate / "server.crt", certificate / "server.key")
    content = notices.body(failed(), MAIL, "n1", 1.0, "ann@example.org")
    with mail_server(certificate=pair, starttls=scheme == "smtp", login=("robot", "s3cret")) as (port, mails):
        url = f"{scheme}://127.0.0.1:{port}"
        with pytest.raises(BackendError, match="cannot send mail through"):
            smtp.send(url, content, smtp.Login("robot", "wrong"), allow_private=True)
        smtp.send(url, content, smtp.Login("robot", "s3cret"), allow_private=True)
    assert [(mail.to, mail.by_starttls, mail.user) for mail in mails] == [
        (("ann@example.org",), scheme == "smtp", "robot")
    ]


@pytest.mark.security
def test_a_password_is_never_sent_in_the_clear_and_a_foreign_certificate_is_refused(
    certificate: Path,
) -> None:
    content = notices.body(failed(), MAIL, "n1", 1.0, "ann@example.org")
    with mail_server() as (port, mails), pytest.raises(InvalidJob, match="offers no STARTTLS"):
        smtp.send(f"smtp://127.0.0.1:{port}", content, smtp.Login("robot", "s3cret"), allow_private=True)
    pair = (certificate / "server.crt", certificate / "server.key")
    with mail_server(certificate=pair) as (port, more), pytest.raises(BackendError, match="certificate"):
        smtp.send(f"smtps://127.0.0.1:{port}", content, allow_private=True)
    assert (mails, more) == ([], [])


@pytest.mark.security
@pytest.mark.parametrize(
    "url",
    [
        "smtps://127.0.0.1",
        "smtp://localhost:25",
        "smtps://user:pw@example.com",
        "smtps://",
        "http://x",
        "smtp://[x",
    ],
)
def test_no_mail_goes_to_the_inside_or_to_what_is_no_mail_server(url: str) -> None:
    with pytest.raises(InvalidJob):
        smtp.send(url, b"To: a@example.org\r\n\r\n")


# -- what a job may ask for --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("notify", "field"),
    [({"to": "ann@"}, "to"), ({"to": "a b"}, "to"), ({"to": "ann@example.org\n"}, "to"), ({"to": ""}, "to"),
     ({"to": "chat", "on": ["finished"]}, "on[0]"), ({"to": "chat", "on": []}, "on")],
)  # fmt: skip
def test_who_cannot_be_told_is_refused_when_the_job_is_checked(notify: dict[str, Any], field: str) -> None:
    from mpijob import checks

    job = MPIJob(name="train", command=("true",), workers=1, notify=(Notify(**notify),))
    found = [one for one in checks.run(job, max_workers=8) if one.code == "BAD_NOTICE"]
    assert [one.field for one in found] == [f"notify[0].{field}"]
