"""Refusals by our own admission webhook and policies, as the errors that the same checks raise before
submitting.

The webhook returns each finding as a cause of its refusal; a ValidatingAdmissionPolicy returns one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.errors import Conflict, Finding, MpiJobError, NotAllowed, QuotaExceeded

_BY_US = re.compile(r'admission webhook "[a-z]+\.mpijob\.dev" denied the request')
_BY_RULE = re.compile(
    r"ValidatingAdmissionPolicy 'mpijob-[a-z-]+' with binding '[^']+' denied request: (?P<message>.*)", re.S
)
_KINDS: dict[str, type[MpiJobError]] = {error.code: error for error in (QuotaExceeded, NotAllowed, Conflict)}


def from_admission(message: str, causes: Iterable[Mapping[str, Any]]) -> MpiJobError | None:
    """Return the error for the user; None if the refusal is not ours."""
    if _BY_US.search(message):
        found = tuple(_finding(cause) for cause in causes if cause.get("message"))
        if found:
            kind = _KINDS.get(found[0].code, NotAllowed)
            text = "\n".join(dict.fromkeys(finding.message for finding in found))
            return kind(text, hint=found[0].hint, findings=found)
    if match := _BY_RULE.search(message):
        # Our policies write "sentence (hint)" into their messageExpression: it has no other field.
        text, _, hint = match["message"].strip().removesuffix(")").partition(" (")
        return NotAllowed(text, hint=hint)
    return None


def _finding(cause: Mapping[str, Any]) -> Finding:
    message, _, hint = str(cause["message"]).partition("\nhint: ")
    return Finding(
        code=str(cause.get("reason") or ""), message=message, hint=hint, field=str(cause.get("field") or "")
    )
