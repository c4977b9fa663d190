"""What the end of a log shows of how the run ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from mpijob.diagnosis.logs.error_lines import (
    ABNORMAL,
    follows_failure,
    is_detail,
    is_fatal,
    is_of_attempt,
    is_result,
    looks_wrong,
    of_launcher,
    points,
    says_something,
)
from mpijob.diagnosis.logs.help_box import boxes

END_LINES = 12
WENT_ON_LINES = 8  # of other text after an error: more than its own report has
_ENDS_WITH_LINES = 6  # and at the end of a log
_FATAL_LINES = 30
_SERIES_OF = 40
_TRACEBACK = b"Traceback (most recent call last)"
_NUMBER = re.compile(rb"[-+]?\d[\d.]*(?:[eEdD][-+]?\d+)?|\s+")
_OF_RANK = re.compile(
    rb"(?i)(?:\b(?:rank|proc|process|worker|node|pid|device|gpu)[ =:#]{0,2}|\[)\d+\]?|\d+(?=:\d\d)|(?<=:)\d\d"
)
_FRAME = re.compile(rb"\s*(?:File \"|at |in |from |#|\[)")
_LAST_STEP = re.compile(
    rb"(?i)\b(?:step|epoch|iteration|iter|cycle|sweep|frame|chunk|batch|part|pass|stage|sample|file|tile)"
    rb"\s*[:=]?\s*(0*[1-9]\d*)\s*(?:of|/)\s*\1\b"
)
_WORK = (
    rb"all|training|run|job|simulation|calculation|solver|benchmark|tests?|steps?|work|study|search|optimi[sz]ation"
    rb"|transfer|program|computation|analysis|workflow|build|tasks?|jobs|cases|samples|epochs?|attempt|pipeline"
    rb"|inference|evaluation|conversion|experiment|campaign|stage|script|everything|model|processing"
)
_BADLY = (
    rb"(?! (?:with|by|in|after) (?:an? |the )?(?:error|failure|signal)"
    rb"| with (?:(?:exit )?(?:code|status)[ :=]*)?-?[1-9]\d*\b(?! \w))"
)
_WELL = re.compile(
    rb"(?i)\b(?:(?:" + _WORK + rb")\b[^\n]{0,30}"
    rb"\b(?:finished|completed?|done|succeeded|ended)\b"
    + _BADLY
    + rb"|success(?:fully)?\b(?! (?:assigned|pulled))|job "
    rb"done|normal termination|converged after|total wall time|all tests passed|\d+ passed\b(?!.{0,60}\bfailed)"
    rb"|\b(?:completed|finished|ended|stopped|terminated|exited) (?:normally|cleanly|correctly|without errors?|ok)\b"
    rb"|^OK\b(?: \(.*\))?$|out of bounds values : 0|exit(?:ed with)? (?:code|status) 0\b|finished:)"
    rb"|(?:^|[ :])(?:done|finished|completed|end|(?<!not )converged)[.!]?\s*$"
)


def _without_warnings(lines: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the lines without the boxes of MPI that only warn."""
    harmless = {at for box in boxes(lines) if not box.text for at in range(box.first - 1, box.last + 2)}
    return (line for at, line in enumerate(lines) if at not in harmless)


def shown(lines: Iterable[bytes]) -> bool | None:
    """Return whether the last lines say that the run is complete (True) or look like a failure; None for neither.

    The very last line decides: a program that reports its success after an error has handled it. An error after a
    report of success, where nothing else reports a failure, shows neither: stderr may come late. Nor does an error
    after which the output goes on.
    """
    said = [line for line in _without_warnings(tuple(lines)) if line.strip()]
    last = _last(said)
    well = [_reports_success(line) for line in last]
    if well and well[-1]:
        return True
    if any(well) and not any(map(follows_failure, last)):
        return None if looks_wrong(last) else True
    if looks_wrong(last):
        return False if _fails(said, last) and not (_continues(said) or _differs_after(said)) else None
    return True if any(_WELL.search(line) for line in last) else None


def went_on(lines: Iterable[bytes]) -> bool:
    """Return whether an end that does not show the outcome holds a result, or a success or last step and an error."""
    said = [line for line in _without_warnings(tuple(lines)) if line.strip()]
    last = _last(said)
    if not last or shown(said) is not None:
        return False
    return is_result(said[-1]) or ((any(map(_is_complete, last)) or _continues(said)) and looks_wrong(last))


def restarted(lines: Iterable[bytes]) -> bool:
    """Return whether the last error is that of an attempt, and output follows it."""
    said = [line for line in _without_warnings(tuple(lines)) if line.strip()]
    last, after, _ = _after_errors(said)
    return bool(after) and is_of_attempt(said[last])


def _continues(said: list[bytes]) -> bool:
    """Whether the work advanced after the last error: by a further line of a series, or of a further attempt.

    What a launcher reports is the last error, but for one that starts its ranks again.
    """
    last, after, reported = _after_errors(said)
    if not after or is_detail(said[-1]):
        return False
    again = is_of_attempt(said[last])
    return again or (not reported and any(_advances(line, said[:last]) for line in after))


def _differs_after(said: list[bytes]) -> bool:
    """Whether something new is written after the last error, which neither ends a program by its words nor is reported.

    What ranks wrote before it, other ranks may write later.
    """
    last, after, reported = _after_errors(said)
    fatal = any(is_fatal(line) or _TRACEBACK in line for line in said[-_FATAL_LINES:])
    earlier = {_shape(line) for line in said[: max(0, last)]}
    return not (reported or fatal or is_detail(said[-1])) and any(
        _shape(line) not in earlier for line in after
    )


def _after_errors(said: list[bytes]) -> tuple[int, list[bytes], bool]:
    """Return where the last error stands, the normal lines after it, and whether a launcher reports any error."""
    inside = {at for box in boxes(said) for at in range(box.first - 1, box.last + 2)}
    wrong = [at for at, line in enumerate(said) if at in inside or _is_wrong(line)]
    if not wrong:
        return -1, [], False
    after = [line for line in said[wrong[-1] + 1 :] if says_something(line) and not is_detail(line)]
    reported = any(at in inside or follows_failure(said[at]) or of_launcher(said[at]) for at in wrong)
    return wrong[-1], after, reported


def _advances(line: bytes, before: list[bytes]) -> bool:
    """Whether a line is a further one of a series: two others of its form or more differ in numbers, and it from them.

    Ranks do not count: where several write the same, one may write it later.
    """
    shape, own = _shape(line), _OF_RANK.sub(b"", line)
    others = {_OF_RANK.sub(b"", other) for other in before if _shape(other) == shape}
    return len(others) > 1 and own not in others


def _is_wrong(line: bytes) -> bool:
    return points(line) >= ABNORMAL or follows_failure(line) or of_launcher(line)


def _shape(line: bytes) -> bytes:
    return _NUMBER.sub(b"", line)


def _last(said: list[bytes]) -> list[bytes]:
    series = _series(said)
    return ([line for line in said if not is_detail(line) or line in series or looks_wrong((line,))] or said)[
        -END_LINES:
    ]


def _series(said: list[bytes]) -> frozenset[bytes]:
    """Return the last lines that differ in numbers only: output of steps, also where a program indents it."""
    late = [(line, _shape(line)) for line in said[-_SERIES_OF:] if not _FRAME.match(line)]
    often = Counter(shape for _, shape in late)
    return frozenset(line for line, shape in late if often[shape] >= WENT_ON_LINES)


def _reports_success(line: bytes) -> bool:
    return bool(_WELL.search(line)) and not looks_wrong((line,))


def _is_complete(line: bytes) -> bool:
    return bool(_LAST_STEP.search(line)) or _reports_success(line)


def _fails(said: list[bytes], last: list[bytes]) -> bool:
    """Whether the last lines, some of which look wrong, are those of a run that failed: it did not go on after them."""
    if any(follows_failure(line) or of_launcher(line) for line in last) or any(
        map(is_fatal, said[-_FATAL_LINES:])
    ):
        return True
    if any(box.text and box.last >= len(said) - END_LINES for box in boxes(said)):
        return True
    if any(map(_is_complete, last)) or is_result(said[-1]):
        return False
    worst = max((at for at, line in enumerate(last) if points(line) >= ABNORMAL), default=len(last))
    return sum(map(says_something, last[worst + 1 :])) < _ENDS_WITH_LINES
