"""Find where the rules hold: in the facts, and in what was said.

A sign in a rank's own stream counts for that rank whatever its text says; names in the launcher's
reports are used where there is nothing better. `ranking` ranks what is found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from mpijob.diagnosis.evidence import Evidence
from mpijob.diagnosis.logs.error_lines import is_detail, is_handled, says_remedy, says_something
from mpijob.diagnosis.logs.log_index import Stream, shown, streams
from mpijob.diagnosis.logs.outcome import WENT_ON_LINES
from mpijob.diagnosis.logs.prefilter import Prefilter
from mpijob.diagnosis.rule import Rule, Sign, Trust
from mpijob.diagnosis.signals import facts
from mpijob.diagnosis.template_fields import worker_at
from mpijob.errors import Place
from mpijob.model import Role

HERE = "here"
AFTERWORD_LINES = 12  # the banner of an abort alone has ten
SAID_AT_MOST = 0.85  # of a line alone: likely, at best
_DIGITS = re.compile(rb"\d+")
_ANNOUNCES = re.compile(rb"(?i)\b(?:error|exception|fail(?:ed|ure)?)\b")
_WORD = re.compile(rb"[^\W_]")
_OF_MPI_CALL = re.compile(rb"MPI_ERR_[A-Z]+: |\bP?MPI_\w+\([^)\n]*\) failed$|^internal_\w+\(\d+\)\.*: ")
_FATAL_IN_MPI = re.compile(rb"Fatal error in|MPI_ERRORS_ARE_FATAL|MPI_ERRORS_ABORT|will now abort")
_AGAIN = re.compile(rb"\n\w+: error: ")  # the name before each line of a report


class Hit(msgspec.Struct, frozen=True):
    """A rule that holds, with where and when its sign was seen; `fact` when an engine knows it, not a line alone.

    `survived` says that the run may have gone on after it.
    """

    rule: Rule
    place: int
    time: float
    worker: int | None = None
    rank: int | None = None
    values: dict[str, Any] = {}
    evidence: tuple[str, ...] = ()
    confidence: float | None = None
    where: Place | None = None
    fact: bool = False
    weak: bool = False
    survived: bool = False

    @property
    def trust(self) -> Trust:
        """How far it is believed: a line never as far as a decision or a fact."""
        return self.rule.trust if self.fact else max(self.rule.trust, Trust.CAUSE)

    @property
    def sure(self) -> float:
        """How sure it is: a line alone is never certain."""
        known = self.rule.confidence if self.confidence is None else self.confidence
        told = self.fact or (self.where is not None and self.where.stream == "event")  # an engine says events
        return known if told else min(known, SAID_AT_MOST)


def find(seen: Evidence, rules: Iterable[Rule]) -> Iterator[Hit]:
    """Yield every place where a rule holds: each fact, and the first place in each stream."""
    known, rules = tuple(facts(seen)), tuple(rules)
    sieve = Prefilter(sign.literal for rule in rules for sign in rule.signs)
    said = [stream for stream in streams(seen) if sieve.any(stream.text)]
    for place, rule in enumerate(rules):
        for fact in known:
            if fact.name in rule.facts:
                yield Hit(
                    rule,
                    place,
                    fact.time,
                    fact.worker,
                    fact.rank,
                    fact.values,
                    (),
                    fact.confidence,
                    fact=True,
                )
        for stream in said if rule.while_running or not seen.going else ():
            if (hit := _in_stream(seen, rule, place, stream)) is not None:
                yield hit


def _in_stream(seen: Evidence, rule: Rule, place: int, stream: Stream) -> Hit | None:
    """Return the sign that tells most in one stream, at the time of the first one."""
    found = [(sign, *match) for sign in rule.signs if (match := _match(seen, rule, sign, stream))]
    if not found:
        return None
    matches = [match for _, match, _ in found]
    best = max(matches, key=lambda match: (len(_named(match)), -_start(match)))
    begin = min(matches, key=_start)
    named = {name: value for match in (*matches, begin, best) for name, value in _named(match).items()}
    rank, worker = _speaker(seen, stream, named)
    (first, last), where = _lines(stream, best), _lines(stream, begin)[0]
    quoted = _quote(stream, first, last)
    if where < first:
        quoted = (*_quote(stream, *_lines(stream, begin))[:3], *quoted)
    return Hit(
        rule, place, stream.time(where), worker, rank, named, quoted, where=stream.place(min(first, where)),
        weak=all(sign.weak for sign, _, _ in found),
        survived=all(survived for _, _, survived in found),
    )  # fmt: skip


def _match(seen: Evidence, rule: Rule, sign: Sign, stream: Stream) -> tuple[re.Match[bytes], bool] | None:
    """Return the first place of a sign, and whether the run may have gone on after it and after all later ones.

    A place that says something else, after which the run did not go on, is preferred.
    """
    if sign.literal.encode() not in stream.text or _ended_otherwise(seen, sign, stream):
        return None
    first: re.Match[bytes] | None = None
    for match in sign.regex.finditer(stream.text):
        if _survived(seen, rule, stream, match):
            continue
        first = first or match
        if not _may_be_survived(rule, stream, match, seen):
            return (first if _shape(first) == _shape(match) else match), False
    return None if first is None or seen.outcome_unseen else (first, True)


def _shape(match: re.Match[bytes]) -> bytes:
    return _DIGITS.sub(b"", match[0])


def _ended_otherwise(seen: Evidence, sign: Sign, stream: Stream) -> bool:
    """Whether the rank that speaks here is known to have ended with another code than the sign's."""
    if sign.code is None or stream.role is not Role.RANK:
        return False
    return any(exit.index == stream.rank and exit.code != sign.code for exit in seen.ranks)


def _survived(seen: Evidence, rule: Rule, stream: Stream, match: re.Match[bytes]) -> bool:
    """Whether a rank went on after what looked like its end: it said more, or ended with 0."""
    if not rule.uncaught or stream.role is not Role.RANK:
        return False
    if any(exit.good for exit in seen.ranks if exit.index == stream.rank):
        return True
    _, last = _lines(stream, match)
    return stream.normal_after(last) > AFTERWORD_LINES


def _may_be_survived(rule: Rule, stream: Stream, match: re.Match[bytes], seen: Evidence) -> bool:
    """Whether a sign may be one that the run survived.

    It is a warning, the output goes on after it, or the log ends with a result or a report of success. What a
    launcher reports counts, and what is told of runs that ended well.
    """
    if rule.even_on_success or rule.warning:
        return False
    if seen.restarted:
        return True
    first, last = _lines(stream, match)
    lines, head = stream.window.lines, first
    if any(map(stream.by_launcher, range(first, last + 1))):
        return seen.outcome_unseen and any(map(is_handled, lines[first : last + 1]))
    while head and is_detail(lines[head - 1]):  # a warning may stand before its traceback
        head -= 1
    announced = lines[max(0, head - 1)]
    handled = bool(_ANNOUNCES.search(announced)) and is_handled(announced)
    following = next(
        (line for line in lines[last + 1 :] if says_something(line) and not is_detail(line)), b""
    )
    return (
        seen.went_on
        or (
            seen.outcome_unseen and (says_remedy(following) or _was_returned(stream, lines[first : last + 1]))
        )
        or handled
        or any(map(is_handled, lines[first : last + 1]))
        or (stream.normal_after(last) >= WENT_ON_LINES and not stream.aborted)
        or (seen.outcome_unseen and rule.uncaught and stream.new_after(first, last))
    )


def _was_returned(stream: Stream, matched: Sequence[bytes]) -> bool:
    """Whether MPI returned an error to the program: where it ends the program, MPI says so."""
    return any(map(_OF_MPI_CALL.search, matched)) and not (
        stream.aborted or _FATAL_IN_MPI.search(stream.text)
    )


def _named(match: re.Match[bytes]) -> dict[str, str]:
    groups = ((name, text) for name, text in match.groupdict().items() if text is not None and name != HERE)
    return {name: shown(_joined(text)) for name, text in groups}


def _start(match: re.Match[bytes]) -> int:
    """Return where a sign stands: where its group `here` does, if the pattern has to look at more of the text."""
    return match.start(HERE) if HERE in match.re.groupindex else match.start()


def _joined(text: bytes) -> bytes:
    """Return text of several lines as one, without the frame or figure that it is drawn in."""
    if b"\n" not in text.strip():
        return text
    return b" ".join(word for word in _AGAIN.sub(b" ", text).split() if _WORD.search(word))


def _lines(stream: Stream, match: re.Match[bytes]) -> tuple[int, int]:
    return stream.at(_start(match)), stream.at(max(_start(match), match.end() - 1))


def _speaker(seen: Evidence, stream: Stream, named: dict[str, str]) -> tuple[int | None, int | None]:
    """Return rank and worker: whose stream it is, else what the sign names."""
    said = named.pop("rank", "")
    rank = int(said) if stream.rank is None and said.isdecimal() and len(said) < 8 else stream.rank
    host = named.get("host")
    worker = stream.worker if stream.worker is not None or host is None else worker_at(seen, host)
    return rank, seen.worker_of(rank) if worker is None else worker


_NOT_THE_USERS = re.compile(r'File "(?:<frozen|[^"]*(?:/mpi4py/|/runpy\.py|/site-packages/|/lib/python3))')


def _quote(stream: Stream, first: int, last: int) -> tuple[str, ...]:
    quotes = stream.quote(first, last)
    if len(quotes) <= 6:
        return quotes
    own = [at for at, quote in enumerate(quotes) if 'File "' in quote and not _NOT_THE_USERS.search(quote)]
    if own:  # a Python traceback: where the user's own code stood last, and what was said there
        return (quotes[0], "…", *quotes[own[-1] : own[-1] + 2], "…", quotes[-1])
    return (*quotes[:2], "…", *quotes[-3:])
