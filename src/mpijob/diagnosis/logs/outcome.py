"""What the end of a log shows of how the run ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mpijob.diagnosis.logs.error_lines import follows_failure, is_detail, looks_wrong
from mpijob.diagnosis.logs.help_box import boxes

END_LINES = 12
_WORK = (
    rb"all|training|run|job|simulation|calculation|solver|benchmark|tests?|steps?|work|study|search|optimi[sz]ation"
    rb"|transfer|program|computation|analysis|workflow|build"
)
_BADLY = (
    rb"(?! (?:with|by|in|after) (?:an? |the )?(?:error|failure|signal)"
    rb"| with (?:(?:exit )?(?:code|status)[ :=]*)?-?[1-9]\d*\b(?! \w))"
)
_WELL = re.compile(
    rb"(?i)\b(?:(?:" + _WORK + rb")\b[^\n]{0,30}"
    rb"\b(?:finished|completed?|done|succeeded|ended)\b" + _BADLY + rb"|success(?:fully)?\b|job "
    rb"done|normal termination|converged after|total wall time|all tests passed|\d+ passed\b(?!.{0,60}\bfailed)"
    rb"|^OK\b(?: \(.*\))?$|out of bounds values : 0|exit(?:ed with)? (?:code|status) 0\b|finished:)"
    rb"|(?:^|[ :])(?:done|finished|completed|end)[.!]?\s*$"
)


def _without_warnings(lines: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the lines without the boxes of MPI that only warn."""
    harmless = {at for box in boxes(lines) if not box.text for at in range(box.first - 1, box.last + 2)}
    return (line for at, line in enumerate(lines) if at not in harmless)


def shown(lines: Iterable[bytes]) -> bool | None:
    """Return whether the last lines say that the run is complete (True) or look like a failure; None for neither.

    The very last line decides: a program that reports its success after an error has handled it. An error after a
    report of success, where nothing else reports a failure, shows neither: stderr may come late.
    """
    said = [line for line in _without_warnings(tuple(lines)) if line.strip()]
    last = ([line for line in said if not is_detail(line) or looks_wrong((line,))] or said)[-END_LINES:]
    well = [bool(_WELL.search(line)) and not looks_wrong((line,)) for line in last]
    if well and well[-1]:
        return True
    if any(well) and not any(map(follows_failure, last)):
        return None if looks_wrong(last) else True
    if looks_wrong(last):
        return False
    return True if any(_WELL.search(line) for line in last) else None
