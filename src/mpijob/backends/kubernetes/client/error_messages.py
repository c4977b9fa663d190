"""What our own admission webhook refused, said here in its own words: the same error as before submitting.

The webhook tells each finding as a cause of its refusal; a rule of the cluster itself
(ValidatingAdmissionPolicy) tells one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.errors import Conflict, Finding, MpiJobError, NotAllowed, QuotaExceeded

_BY_US = re.compile(r'admission webhook "[a-z]+\.mpijob\.dev" denied the request')
_BY_RULE = re.compile(
    r"ValidatingAdmissionPolicy 'mpijob-[a-z-]+' with binding '[^']+' denied request: (?P<said>.*)", re.S
)
_KINDS: dict[str, type[MpiJobError]] = {one.code: one for one in (QuotaExceeded, NotAllowed, Conflict)}


def of_ours(message: str, causes: Iterable[Mapping[str, Any]]) -> MpiJobError | None:
    """Return the error that our webhook, or a rule of ours, has for the user; None where others refused."""
    if _BY_US.search(message):
        found = tuple(_finding(one) for one in causes if one.get("message"))
        if found:
            kind = _KINDS.get(found[0].code, NotAllowed)
            text = "\n".join(dict.fromkeys(one.message for one in found))
            return kind(text, hint=found[0].hint, findings=found)
    if said := _BY_RULE.search(message):
        text, _, hint = said["said"].strip().removesuffix(")").partition(" (")
        return NotAllowed(text, hint=hint)
    return None


def _finding(cause: Mapping[str, Any]) -> Finding:
    message, _, hint = str(cause["message"]).partition("\nhint: ")
    return Finding(
        code=str(cause.get("reason") or ""), message=message, hint=hint, field=str(cause.get("field") or "")
    )
