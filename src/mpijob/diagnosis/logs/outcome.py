"""What the end of a log shows of how the run ended."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mpijob.diagnosis.logs.error_lines import is_detail, looks_wrong

END_LINES = 12
_WELL = re.compile(
    rb"(?i)\b(?:(?:all|training|run|job|simulation|calculation|solver|benchmark|test|tests|steps?|work)\b[^\n]{0,30}"
    rb"\b(?:finished|completed?|done|succeeded|ended)\b(?! with (?:error|failure))|success(?:fully)?\b|job "
    rb"done|normal termination|"
    rb"total wall time|all tests passed|out of bounds values : 0|exit(?:ed with)? code 0\b|finished:)|(?:^"
    rb"|[ :])(?:done|finished|completed|end)[.!]?\s*$"
)


def shown(lines: Iterable[bytes]) -> bool | None:
    """Return whether the last lines say that the run is complete (True) or look like a failure; None for neither.

    The very last line decides: a program that reports its success after an error has handled it.
    """
    said = [line for line in lines if line.strip()]
    last = ([line for line in said if not is_detail(line)] or said)[-END_LINES:]
    if last and _WELL.search(last[-1]) and not looks_wrong(last[-1:]):
        return True
    if looks_wrong(last):
        return False
    return True if any(_WELL.search(line) for line in last) else None
