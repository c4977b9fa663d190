"""Explain codes: causes of a diagnosis, checks of a job, kinds of errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from mpijob import errors


def meaning(code: str) -> list[str]:
    """Return the lines that explain a code, none for an unknown one."""
    return _of_rule(code) or _of_check(code) or _of_error(code)


def known() -> Iterator[str]:
    """Yield all codes."""
    from mpijob.checks.run import RULES as CHECKS
    from mpijob.diagnosis.rules import IDS

    yield from sorted(IDS)
    yield from (check.code for check in CHECKS)
    yield from (kind.code for kind in _errors())


def _of_rule(code: str) -> list[str]:
    from mpijob.diagnosis import rule_docs
    from mpijob.diagnosis.rules import RULES, UNKNOWN

    rule = next((rule for rule in (*RULES, UNKNOWN) if rule.id == code), None)
    return [line.lstrip("#> ") for line in rule_docs.page(rule).splitlines()] if rule else []


def _of_check(code: str) -> list[str]:
    from mpijob.checks.run import RULES

    check = next((check for check in RULES if check.code == code), None)
    if check is None:
        return []
    fields = ", ".join(sorted(check.reads))
    return [f"{code}: a check of the job before it runs", "", _sentence(check.check), "", f"Fields: {fields}"]


def _of_error(code: str) -> list[str]:
    kind = next((kind for kind in _errors() if kind.code == code), None)
    return [f"{code}: a command was refused", "", _sentence(kind)] if kind else []


def _errors() -> list[type[errors.MpiJobError]]:
    ours = (kind for kind in errors.MpiJobError.__subclasses__() if kind.__module__ == errors.__name__)
    return [errors.MpiJobError, *ours]


def _sentence(of: object) -> str:
    return (inspect.getdoc(of) or "").splitlines()[0]
