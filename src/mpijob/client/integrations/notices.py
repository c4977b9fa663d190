"""Content of callbacks: JSON for programs, messages for Slack and Teams, mails; and their recipients.

Pure: `webhooks` sends it. Text of a job is escaped for each receiver, so that it can neither mention users in
a chat nor add headers to a mail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, NamedTuple

import msgspec

from mpijob.model import JobState, Phase
from mpijob.model.spec.job import Notify
from mpijob.observation.redaction.masking import masked_text
from mpijob.settings import CallbackSetting

_ENDS = {Phase.SUCCEEDED: "succeeded", Phase.FAILED: "failed", Phase.CANCELLED: "cancelled"}
_TEAMS_SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"
_LONGEST_SUBJECT = 200


class Delivery(NamedTuple):
    """One message: its recipient ("": the callback's own address), and the change of the job."""

    change: str
    to: str = ""


def deliveries(
    setting: CallbackSetting, state: JobState, wishes: Iterable[Notify] = ()
) -> Iterator[Delivery]:
    """Yield the deliveries of one callback for a state, by its own phases and by the job's `notify`."""
    if setting.namespaces and state.ref.namespace not in setting.namespaces:
        return
    changes = _changes(state)
    told: set[Delivery] = set()
    if state.phase.value in setting.phases:
        told |= {Delivery(state.phase.value, to) for to in (setting.to if setting.by_smtp else ("",))}
    for wish in wishes:
        if setting.takes(wish.to) and (wish.is_address or "@" not in wish.to):
            to = wish.to if wish.is_address else ""
            for everyone in setting.to if setting.by_smtp and not to else (to,):
                told |= {Delivery(change, everyone) for change, moments in changes if moments & {*wish.on}}
    yield from sorted(told)


def untaken(settings: Iterable[CallbackSetting], namespace: str, wishes: Iterable[Notify]) -> list[str]:
    """Return the recipients in `notify` that no callback of the settings serves."""
    there = [one for one in settings if not one.namespaces or namespace in one.namespaces]
    return [wish.to for wish in wishes if not any(one.takes(wish.to) for one in there)]


def _changes(state: JobState) -> list[tuple[str, frozenset[str]]]:
    """Return the changes that a state means, each with its words of `notify.on`."""
    if state.phase in _ENDS:
        return [(state.phase.value, frozenset({_ENDS[state.phase], "ended"}))]
    found = []
    if state.attempt > 1:
        found.append(("Retried", frozenset({"retried"})))
    if state.phase is Phase.RUNNING:
        found.append((state.phase.value, frozenset({"started"})))
    if state.phase is Phase.QUEUED and state.attempt == 1:
        found.append((state.phase.value, frozenset({"queued"})))
    return found


def body(state: JobState, setting: CallbackSetting, number: str, now: float, to: str = "") -> bytes:
    """Return the content in the format of the receiver, with secrets masked."""
    if setting.by_smtp:
        return _mail(state, setting, number, to)
    match setting.shape:
        case "slack":
            return msgspec.json.encode(_slack(state, setting))
        case "teams":
            return msgspec.json.encode(_teams(state, setting))
        case "mail":
            subject = f"mpijob: {_sentence(state)}"[:_LONGEST_SUBJECT]
            return msgspec.json.encode({"subject": subject, "body": _text(state, setting)})
        case "json":
            return msgspec.json.encode(_json(state, setting, number, now))


def _link(state: JobState, setting: CallbackSetting) -> str:
    return f"{setting.page.rstrip('/')}/jobs/{state.ref.namespace}/{state.ref.name}" if setting.page else ""


def _sentence(state: JobState) -> str:
    cause = masked_text(state.findings[0].message if state.findings else state.message)
    return f"{state.ref} {state.phase.value}: {cause}"


def _text(state: JobState, setting: CallbackSetting) -> str:
    hint = masked_text(state.findings[0].hint or "") if state.findings else ""
    return "\n".join(filter(None, (_sentence(state), hint, _link(state, setting))))


def _json(state: JobState, setting: CallbackSetting, number: str, now: float) -> dict[str, Any]:
    return {
        "id": number, "time": now, "namespace": state.ref.namespace, "name": state.ref.name, "uid": state.ref.uid,
        "attempt": state.attempt, "phase": state.phase.value, "reason": state.reason,
        "message": masked_text(state.message), "cause": state.findings[0].code if state.findings else "",
        "owner": state.owner, "labels": state.labels, "seconds": state.duration_seconds(now),
        "link": _link(state, setting),
    }  # fmt: skip


def _slack(state: JobState, setting: CallbackSetting) -> dict[str, Any]:
    """Return a message for Slack's incoming webhooks."""
    # Slack requires these three escapes; they also disarm `<!everyone>` in a job's message.
    escaped = _sentence(state).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": f"{escaped}\n{_link(state, setting)}".rstrip()}


def _teams(state: JobState, setting: CallbackSetting) -> dict[str, Any]:
    """Return a message of Teams' webhooks (Workflows): one adaptive card."""
    facts = {"Owner": state.owner, "Attempt": str(state.attempt), "Reason": state.reason}
    card: dict[str, Any] = {
        "$schema": _TEAMS_SCHEMA,
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {"type": "TextBlock", "text": _plain(_sentence(state)), "weight": "bolder", "wrap": True},
            {
                "type": "FactSet",
                "facts": [{"title": name, "value": _plain(value)} for name, value in facts.items() if value],
            },
        ],
    }
    if link := _link(state, setting):
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open the job", "url": link}]
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [content]}


def _plain(text: str) -> str:
    """Escape Markdown of Teams."""
    return re.sub(r"([\\`*_\[\]()#<>])", r"\\\1", text)


def _mail(state: JobState, setting: CallbackSetting, number: str, to: str) -> bytes:
    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["To"] = setting.sender, to
    mail["Subject"] = re.sub(r"\s+", " ", f"mpijob: {_sentence(state)}")[:_LONGEST_SUBJECT]
    mail["Message-ID"] = f"<{number}@mpijob>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(f"{_text(state, setting)}\n")
    return mail.as_bytes()
