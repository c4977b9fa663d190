"""Label selectors in kubectl's form: `team=cv,tier!=test,stage in (a,b),!old`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mpijob.errors import InvalidJob

_TERM = r"(!?)([\w./-]+)(?:\s*(==|=|!=)\s*([\w.-]*)|\s+(in|notin)\s+\(([^()]*)\))?"
_COMMA = r",(?![^()]*\))"


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels."""
    return all(_holds(term, labels) for term in _terms(selector))


def asks_for(selector: str, key: str) -> bool:
    """Return whether a selector requires a label's value: `key=a`, `key in (a,b)`; not if it only excludes some."""
    found = [_parts(term) for term in _terms(selector)]
    return any(each[1] == key and (each[2] in ("=", "==") or each[4] == "in") for each in found)


def _terms(selector: str) -> Iterator[str]:
    return (term.strip() for term in re.split(_COMMA, selector) if term.strip())


def _parts(term: str) -> tuple[str, ...]:
    match = re.fullmatch(_TERM, term)
    if match is None or (match[1] and (match[3] or match[5])):
        raise InvalidJob(f"'{term}' is not a label selector", hint="write it as team=cv,tier!=test")
    return tuple(match.groups(""))


def _holds(term: str, labels: Mapping[str, str]) -> bool:
    denied, key, sign, value, word, values = _parts(term)
    if sign:
        return (labels.get(key) == value) is (sign != "!=")
    if word:
        return (labels.get(key) in [item.strip() for item in values.split(",")]) is (word == "in")
    return (key in labels) is not bool(denied)
