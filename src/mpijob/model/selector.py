"""Label selectors as kubectl takes them: `team=cv,tier!=test,stage in (a,b),!old`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mpijob.errors import InvalidJob

_TERM = r"(!?)([\w./-]+)(?:\s*(==|=|!=)\s*([\w.-]*)|\s+(in|notin)\s+\(([^()]*)\))?"
_COMMA = r",(?![^()]*\))"


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector (`team=cv,tier!=test,stage in (a,b)`) matches these labels."""
    return all(_holds(term.strip(), labels) for term in re.split(_COMMA, selector) if term.strip())


def _holds(term: str, labels: Mapping[str, str]) -> bool:
    match = re.fullmatch(_TERM, term)
    if match is None or (match[1] and (match[3] or match[5])):
        raise InvalidJob(f"'{term}' is not a label selector", hint="write it as team=cv,tier!=test")
    _, key, sign, value, word, values = match.groups()
    if sign:
        return (labels.get(key) == value) is (sign != "!=")
    if word:
        return (labels.get(key) in [item.strip() for item in values.split(",")]) is (word == "in")
    return (key in labels) is not bool(match[1])
