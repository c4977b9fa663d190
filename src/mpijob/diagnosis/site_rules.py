"""Builds rules from a site's rule file, and tests them on the examples in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import Formatter
from typing import NamedTuple

import msgspec

from mpijob import codec
from mpijob.diagnosis import ranking
from mpijob.diagnosis.logs import standalone_log
from mpijob.diagnosis.matcher import find
from mpijob.diagnosis.rule import Remedy, Rule, Sign
from mpijob.diagnosis.rules import IDS
from mpijob.model import MPIJob
from mpijob.model.platform.site_rule import SiteRule

_ID = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_FIELDS = frozenset(
    (
        "who",
        "whom",
        "rank",
        "worker",
        "job",
        "workers",
        "slots",
        "world",
        "node",
        "family",
        "limit",
        "peak",
        "host",
    )
)
_SAMPLE_JOB = MPIJob(name="job", workers=2, command=("true",))


class Fault(NamedTuple):
    """A fault in one rule of a file: the path of the field, the message, and how to fix it."""

    path: tuple[str | int, ...]
    message: str
    hint: str = ""


def build(rule: SiteRule) -> Rule:
    """Return a site's rule as a rule of the engine."""
    return Rule(
        id=rule.id,
        title=rule.title,
        why=rule.why or rule.title,
        signs=(Sign(rule.literal, rule.pattern),),
        causes=(rule.cause, rule.title),
        remedies=tuple(Remedy(fix.text, fix.patch) for fix in rule.fixes),
        confidence=rule.confidence,
        while_running=rule.while_running,
    )


def faults(rules: tuple[SiteRule, ...], *, tried: bool = True) -> Iterator[Fault]:
    """Yield all faults of rules; with `tried`, also examples that they do not match."""
    seen: dict[str, int] = {}
    for at, rule in enumerate(rules):
        here = ("rules", at)
        wrong = list(_field_faults(rule, seen))
        seen.setdefault(rule.id, at)
        yield from (fault._replace(path=(*here, *fault.path)) for fault in wrong)
        if tried and not wrong:
            yield from (fault._replace(path=(*here, *fault.path)) for fault in _example_faults(rule))


def _field_faults(rule: SiteRule, seen: dict[str, int]) -> Iterator[Fault]:
    if not _ID.fullmatch(rule.id):
        yield Fault(
            ("id",), f"'{rule.id}' is not a valid rule ID", "use capital letters and _, such as SITE_LICENCE"
        )
    if rule.id in IDS:
        yield Fault(("id",), f"{rule.id} is the ID of a built-in rule", "choose another ID")
    if rule.id in seen:
        yield Fault(("id",), f"{rule.id} is already the ID of rule {seen[rule.id] + 1}", "choose another ID")
    if len(rule.literal.strip()) < 3:
        yield Fault(
            ("literal",), "the literal is too short: it would match most logs", "use one or two whole words"
        )
    if not 0 <= rule.confidence <= 1:
        yield Fault(("confidence",), f"{rule.confidence:g} is not between 0 and 1")
    groups = _groups(rule.pattern)
    if isinstance(groups, str):
        yield Fault(
            ("pattern",),
            f"the pattern is not a regular expression: {groups}",
            "put a backslash before ( ) [ ] . to mean the character itself",
        )
        return
    yield from _fields(rule, groups)


def _groups(pattern: str) -> frozenset[str] | str:
    """Return the names of a pattern's groups, or why it is not a regular expression."""
    try:
        return frozenset(Sign("", pattern).regex.groupindex)
    except re.error as error:
        return str(error)


def _fields(rule: SiteRule, groups: frozenset[str]) -> Iterator[Fault]:
    texts = [
        (("cause",), rule.cause),
        *((("fixes", at, "text"), fix.text) for at, fix in enumerate(rule.fixes)),
    ]
    for path, text in texts:
        try:
            names = {name for _, name, _, _ in Formatter().parse(text) if name}
        except ValueError as error:
            yield Fault(path, f"unbalanced braces: {error}", "write {{ for a brace")
            continue
        if unknown := sorted(names - groups - _FIELDS):
            known = ", ".join(sorted(groups | _FIELDS))
            yield Fault(
                path, f"{{{unknown[0]}}} is neither a group of the pattern nor known", f"known are: {known}"
            )


def _example_faults(rule: SiteRule) -> Iterator[Fault]:
    if not rule.examples:
        yield Fault(
            ("examples",),
            "the rule has no example to test it with",
            "add a log line that it must match",
        )
    for at, example in enumerate(rule.examples):
        if rule.literal not in example:
            yield Fault(
                ("examples", at),
                "the literal does not occur in this example",
                "a rule runs only on text that contains its literal",
            )
        elif rule.id not in matched_ids(rule, example):
            yield Fault(("examples", at), "the pattern does not match this example")
    for at, text in enumerate(rule.innocent):
        if rule.id in matched_ids(rule, text):
            yield Fault(
                ("innocent", at),
                "the pattern matches this text, which it must not match",
                "make the pattern more specific",
            )
    for at, fix in enumerate(rule.fixes):
        if fix.patch:
            yield from _patch(at, fix.patch)


def _patch(at: int, patch: object) -> Iterator[Fault]:
    try:
        codec.convert(ranking.merged(msgspec.to_builtins(_SAMPLE_JOB), patch), MPIJob)
    except msgspec.ValidationError as error:
        yield Fault(
            ("fixes", at, "patch"),
            f"the patch is not valid for a job: {error}",
            "mpijob explain FIELD shows its allowed values",
        )


def matched_ids(rule: SiteRule, text: str) -> frozenset[str]:
    """Return the IDs of all findings in a text with this rule."""
    seen = standalone_log.read({"example": iter((text.encode(),))}, exit_code=1, site=(build(rule),))
    return frozenset(hit.rule.id for hit in find(seen, (build(rule),)))
