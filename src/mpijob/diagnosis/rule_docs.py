"""Writes the troubleshooting page of a rule from the rule itself, so that both agree.

The pages are in docs/troubleshooting; tests/unit/project/test_troubleshooting.py compares them and describes
how to regenerate them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from mpijob.diagnosis.rule import Remedy, Rule, Sign
from mpijob.diagnosis.rules import RULES, UNKNOWN


class _Placeholders(dict[str, str]):
    """Every field as its name in capitals."""

    def __missing__(self, name: str) -> str:
        return name.upper()


def page(rule: Rule) -> str:
    """Return the page: what you see, why, what to do."""
    seen = f"> {rule.example or _plain(rule.causes[0])}"
    steps = "\n".join(_step(number, remedy) for number, remedy in enumerate(rule.remedies, start=1))
    return (
        f"# {rule.id}: {rule.title}\n\n## What you see\n{seen}\n{_signs(rule)}\n## Why\n{rule.why}\n\n"
        f"## What to do\n{steps}\n"
    )


def index(codes: Mapping[str, str]) -> str:
    """Return the index of all pages: those of the rules, and of error codes, given with their titles."""
    rules = {rule.id: rule.title for rule in (*RULES, UNKNOWN)}
    return (
        "# Troubleshooting\n\n`mpijob why JOB` shows why a job failed, waits or hangs, with one of these codes; "
        "`mpijob why --log FILE` does so for a log ([guide](../how-to/users/why.md)).\n\n"
        f"## A job failed\n{_rows(rules)}\n\n## A command was refused\n{_rows(codes)}\n"
    )


def _rows(titles: Mapping[str, str]) -> str:
    rows = (f"| [{code}]({code.lower()}.md) | {title} |" for code, title in sorted(titles.items()))
    return "\n".join(("| code | meaning |", "| --- | --- |", *rows))


def _whole_word(sign: Sign) -> str:
    """Return the text that a sign searches for, with the first letter that may be of either case."""
    literal = sign.literal.strip()
    first = re.search(r"\[(\w)(\w)\]" + re.escape(literal), sign.pattern)
    return f"{min(first.groups(), key=str.isupper)}{literal}" if first else literal


def _signs(rule: Rule) -> str:
    literals = sorted({_whole_word(sign) for sign in rule.signs} - {""})
    if not literals:
        return ""
    return "\nIn the log: " + ", ".join(f"`{literal}`" for literal in literals) + ".\n"


def _step(number: int, remedy: Remedy) -> str:
    text = f"{number}. {_plain(remedy.text)}"
    return f"{text} (in the spec: `{_change(remedy.patch)}`)" if remedy.patch else text


def _change(patch: Mapping[str, object]) -> str:
    text = msgspec.json.encode(patch).decode()
    return re.sub(r'"\{(\w+)\}"', lambda field: field[1].upper(), text)


def _plain(template: str) -> str:
    return template.format_map(_Placeholders())
