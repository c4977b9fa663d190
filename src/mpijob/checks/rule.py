"""The type of a rule: a code, the fields that it reads, and a function from a job to findings.

`run` lists the rules of the other modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from mpijob.errors import Finding, Fix, Severity
from mpijob.model import MPIJob

Findings = Iterator[Finding]

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LONGEST_LABEL = 63


class Limits(msgspec.Struct, frozen=True):
    """An administrator's settings that rules use."""

    max_workers: int = 100


class Rule(msgspec.Struct, frozen=True):
    """One rule. It is skipped if one of its fields has a wrong type already."""

    code: str
    reads: frozenset[str]
    check: Callable[[MPIJob, Limits], Findings]


def rule(code: str, reads: str, check: Callable[[MPIJob, Limits], Findings]) -> Rule:
    """Decorate a rule that reads these fields, separated by blanks."""
    return Rule(code, frozenset(reads.split()), check)


def error(field: str, message: str, hint: str = "", patch: dict[str, Any] | None = None) -> Finding:
    return _finding(Severity.ERROR, field, message, hint, patch)


def warning(field: str, message: str, hint: str = "", patch: dict[str, Any] | None = None) -> Finding:
    return _finding(Severity.WARNING, field, message, hint, patch)


def notice(field: str, message: str) -> Finding:
    return _finding(Severity.NOTICE, field, message, "", None)


def _finding(
    severity: Severity, field: str, message: str, hint: str, patch: dict[str, Any] | None
) -> Finding:
    fixes = (Fix(hint, patch),) if patch else ()
    return Finding(code="", message=message, hint=hint, field=field, severity=severity, fixes=fixes)


def dns_label(text: str) -> bool:
    """Return whether a text is a DNS-1123 label."""
    return len(text) <= LONGEST_LABEL and LABEL.fullmatch(text) is not None


def dns_name(text: str) -> bool:
    """Return whether a text is a DNS-1123 subdomain: labels with dots between them."""
    return len(text) <= 253 and all(dns_label(part) for part in text.split("."))


def unfit(text: str) -> str:
    """Return why a text cannot be an argument or a variable of a process, "" if it can."""
    if "\0" in text:
        return "contains a NUL byte"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not valid Unicode"
    return ""


def unfit_line(text: str) -> str:
    """Return why a text cannot be a name or a single line, "" if it can."""
    if reason := unfit(text):
        return reason
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return "contains a line break or another control character"
    return ""


def at(field: str, key: str) -> str:
    """Return the path of an entry; only the field's if the key is not printable."""
    return f"{field}.{key}" if len(key) <= 100 and not unfit_line(key) else field
