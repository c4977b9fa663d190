"""Filters single lines by source, time and a user's pattern; `pipeline` applies them.

Regular expressions come from users, so they run in re2, whose time is linear in the text, if it is installed
(`mpijob[regex]`). Otherwise Python's engine is used with limits: patterns that may take exponential time are
refused, and only the first KiB of a line is searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from mpijob.errors import InvalidJob
from mpijob.model import LogLine, LogQuery
from mpijob.model.status.records import spans

Predicate = Callable[[LogLine], bool]
Search = Callable[[bytes], bool]

LONGEST_PATTERN = 1000
GUARDED_BYTES = 1024
MOST_REPEATS = 4


def sources(query: LogQuery) -> Predicate:
    """Return a function that returns whether a line has the source and time that a query asks for."""
    tests = [*_sources(query), *_times(query)]
    if not tests:
        return lambda line: True
    return tests[0] if len(tests) == 1 else lambda line: all(test(line) for test in tests)


def missing_sources(query: LogQuery, *, ranks: int, workers: int, attempts: int) -> str:
    """Return which sources of a query the job does not have, as the end of a sentence; "" if it has all.

    A count of 0 is unknown, so it is not compared.
    """
    for noun, numbers, count in (("rank", query.ranks, ranks), ("worker", query.workers, workers)):
        if missing := [number for number in numbers if count and not 0 <= number < count]:
            names = f"{noun}{'s' if len(missing) > 1 else ''} {spans(missing)}"
            existing = f"{noun} 0 is its only one" if count == 1 else f"its {noun}s are 0-{count - 1}"
            return f"has no {names}: {existing}"
    if query.attempt is not None and attempts and not 1 <= query.attempt <= attempts:
        return f"has no attempt {query.attempt}: there {'was 1' if attempts == 1 else f'were {attempts}'}"
    return ""


def _sources(query: LogQuery) -> Iterator[Predicate]:
    if query.roles:
        roles = frozenset(query.roles)
        yield lambda line: line.role in roles
    if query.workers:
        workers = frozenset(query.workers)
        yield lambda line: line.worker in workers
    if query.ranks:
        ranks = frozenset(query.ranks)
        yield lambda line: line.rank in ranks
    if query.steps:
        steps = frozenset(query.steps)
        yield lambda line: line.step in steps
    if query.attempt is not None:
        attempt = query.attempt
        yield lambda line: line.attempt == attempt
    if query.streams:
        streams = frozenset(query.streams)
        yield lambda line: line.stream in streams


def _times(query: LogQuery) -> Iterator[Predicate]:
    if query.since is not None:
        since_ns = int(query.since * 1e9)
        yield lambda line: line.time >= since_ns
    if query.until is not None:
        until_ns = int(query.until * 1e9)
        yield lambda line: line.time <= until_ns


def compile_search(pattern: str) -> Search:
    """Return a search in bytes for a user's pattern; raise InvalidJob if it is not allowed."""
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidJob(f"the pattern has {len(pattern)} characters; {LONGEST_PATTERN} are allowed")
    compiled = _compile_re2(pattern)
    return guarded_search(pattern) if compiled is None else lambda text: compiled.search(text) is not None


def compile_marking(pattern: str, before: bytes, after: bytes) -> Callable[[bytes], bytes]:
    """Return a function that encloses everything that matches; limits as for `compile_search`."""
    compile_search(pattern)
    compiled, most = _compile_re2(pattern), None
    if compiled is None:
        compiled, most = re.compile(pattern.encode()), GUARDED_BYTES

    def marked(text: bytes) -> bytes:
        parts, at = [], 0
        for found in compiled.finditer(text[:most]):
            if found.end() > found.start():
                parts += [text[at : found.start()], before, found.group(), after]
                at = found.end()
        return b"".join([*parts, text[at:]])

    return marked


def compile_groups(pattern: str) -> Callable[[bytes], dict[str, bytes] | None]:
    """Return a function that finds a pattern's named groups in a text; limits as for `compile_search`."""
    compile_search(pattern)
    compiled, most = _compile_re2(pattern), None
    if compiled is None:
        compiled, most = re.compile(pattern.encode()), GUARDED_BYTES

    def groups(text: bytes) -> dict[str, bytes] | None:
        found = compiled.search(text[:most])
        if found is None:
            return None
        # re2 returns the names of groups as bytes.
        return {_as_str(name): value for name, value in found.groupdict().items()}

    return groups


def _as_str(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _compile_re2(pattern: str) -> Any:
    """Return the pattern compiled by re2; None if re2 is not installed."""
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.log_errors = False
    # Bytes as they are: logs need not be valid UTF-8.
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        raise _invalid_pattern(pattern, _reason(error)) from error


def guarded_search(pattern: str) -> Search:
    """Return the search that is used without re2."""
    try:
        compiled = re.compile(pattern.encode())
    except re.error as error:
        raise _invalid_pattern(pattern, str(error)) from error
    if reason := _risk(pattern):
        raise InvalidJob(
            f"the pattern {pattern!r} could take very long: {reason}",
            hint="simplify it, or install mpijob[regex], which searches in linear time",
        )
    return lambda text: compiled.search(text[:GUARDED_BYTES]) is not None


def _invalid_pattern(pattern: str, reason: str) -> InvalidJob:
    return InvalidJob(
        f"{pattern!r} is not a regular expression: {reason}",
        hint="put a backslash before ( ) [ ] { } * + ? . to search for the character itself",
    )


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _risk(pattern: str) -> str:
    # Why a pattern may backtrack exponentially: a repeated group that contains a choice or a repeat.
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", _keep_references, pattern)
    if "#" in plain:
        return "it refers back to a group"
    if len(re.findall(r"[*+]|\{\d*,\d*\}", plain)) > MOST_REPEATS:
        return f"it has more than {MOST_REPEATS} repeats"
    opened: list[int] = []
    for at, character in enumerate(plain):
        if character == "(":
            opened.append(at)
        elif character == ")" and opened:
            inside = plain[opened.pop() + 1 : at].removeprefix("?:")
            if plain[at + 1 : at + 2] in ("*", "+", "{") and re.search(r"[*+?{|]", inside):
                return "a repeated group holds a repeat or a choice"
    return ""


def _keep_references(match: re.Match[str]) -> str:
    """Replace escapes and character sets by a letter, and references to groups by `#`."""
    return "#" if re.fullmatch(r"\\[1-9]", match[0]) else "x"
