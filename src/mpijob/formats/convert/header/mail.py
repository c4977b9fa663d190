"""Mail options of batch scripts: addresses and events are separate options, and become the job's `notify`."""

from __future__ import annotations

from collections.abc import Mapping

from mpijob.formats.convert.header.request import Request
from mpijob.model.spec.enums import NOTICES
from mpijob.model.spec.job import Notify

SLURM = {"BEGIN": "started", "END": "ended", "FAIL": "failed", "REQUEUE": "retried"}
PBS = {"b": "started", "e": "ended", "a": "failed"}
NO_ADDRESS = "set notify: [{to: ADDRESS, on: [ended]}]"
_NOTIFIER = "a notifier with mail settings sends it: docs/how-to/users/callbacks.md"


def take_address(request: Request, field: str, value: str) -> None:
    request.mail["to"] = (field, value, request.notes.line)


def take_moments(request: Request, field: str, value: str) -> None:
    request.mail["on"] = (field, value, request.notes.line)


def finish(request: Request, words: Mapping[str, str]) -> None:
    """Set `notify` from the options read before; `words` are the batch system's names of events."""
    field, value, line = request.mail.get("to", ("", "", 0))
    people = [Notify(to=part.strip()) for part in value.split(",") if part.strip()]
    addresses = [user for user in people if user.is_address]
    moments = _moments(request, words) if "on" in request.mail else ("ended",)
    if field:
        request.notes.line = line
        if addresses and moments:
            request.notes.changed(field, value, "notify", _NOTIFIER)
        elif addresses:
            request.notes.exact(field, value, "", "no mail is requested")
        else:
            request.notes.dropped(field, value, "not a mail address", NO_ADDRESS)
    if "on" in request.mail:
        field, value, request.notes.line = request.mail["on"]
        if not moments:
            request.notes.exact(field, value, "", "no mail is sent")
        elif addresses:
            request.notes.changed(field, value, f"notify.on: {', '.join(moments)}", _NOTIFIER)
        else:
            request.notes.dropped(field, value, "no mail address is given", NO_ADDRESS)
    request.notes.line = 0
    if addresses and moments:
        request.fields["notify"] = tuple(address.replace(on=moments) for address in addresses)


def _moments(request: Request, words: Mapping[str, str]) -> tuple[str, ...]:
    """Return our names of the events. `ended` includes failures, so `failed` beside it would send a second mail."""
    text = request.mail["on"][1]
    parts = list(text) if words is PBS else [part.strip().upper() for part in text.split(",")]
    asked = {*words.values()} if "ALL" in parts else {words[part] for part in parts if part in words}
    if "ended" in asked:
        asked.discard("failed")
    return tuple(notice for notice in NOTICES if notice in asked)
