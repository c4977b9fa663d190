"""Finds frequent causes of failures among many finished jobs, for administrators.

Pure; the client collects the jobs. A cause that made several jobs of a namespace fail is a pattern, and so is
a machine on which failures accumulate while jobs on others succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mpijob.errors import Finding
from mpijob.model import JobState, Phase

LEAST = 2
_MOST_NAMES = 5
_UNKNOWN = "UNKNOWN"


class Pattern(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Several jobs that failed for the same cause in one namespace, or on the same machine."""

    message: str
    code: str = ""
    namespace: str = ""
    node: str = ""
    count: int
    jobs: tuple[str, ...]
    owners: tuple[str, ...] = ()
    first: float
    last: float
    example: str = ""
    hint: str = ""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Results of the jobs of a period, and what failed jobs have in common; `single` failed for a unique cause."""

    since: float
    until: float
    ended: int
    failed: int
    message: str
    patterns: tuple[Pattern, ...] = ()
    single: int = 0


def find(states: Iterable[JobState], *, since: float, until: float, least: int = LEAST) -> Fleet:
    """Return the patterns among the jobs that ended in a period, the most frequent first."""
    ended = [state for state in states if state.phase.final and since <= (state.finished or 0.0) <= until]
    failed = sorted((s for s in ended if s.phase is Phase.FAILED), key=lambda s: s.finished or 0.0)
    period = _period(until - since)
    causes: dict[tuple[str, str], list[JobState]] = {}
    for state in failed:
        causes.setdefault((_cause(state).code, state.ref.namespace), []).append(state)
    found = [
        _of_cause(code, namespace, same, period)
        for (code, namespace), same in causes.items()
        if len(same) >= least
    ]
    found += _nodes(ended, failed, period, least)
    return Fleet(
        since=since,
        until=until,
        ended=len(ended),
        failed=len(failed),
        message=_summary(len(ended), len(failed), period),
        patterns=tuple(sorted(found, key=lambda pattern: (-pattern.count, -pattern.last, pattern.message))),
        single=sum(len(same) for same in causes.values() if len(same) < least),
    )


def _cause(state: JobState) -> Finding:
    """Return the first cause of a failure, or that nobody knows it."""
    return (
        state.findings[0] if state.findings else Finding(_UNKNOWN, state.message or "the cause is not known")
    )


def _of_cause(code: str, namespace: str, same: Sequence[JobState], period: str) -> Pattern:
    last = _cause(same[-1])
    text = f"{len(same)} job{'s' if len(same) > 1 else ''} failed in {period} with {code} in namespace {namespace}"
    return _pattern(same, text, code=code, namespace=namespace, example=last.message, hint=last.hint)


def _nodes(
    ended: Sequence[JobState], failed: Sequence[JobState], period: str, least: int
) -> Iterable[Pattern]:
    # Several failures, and more than half of those whose machine is known.
    located = [(state, node) for state in failed if (node := _node(state))]
    nodes = {worker.node for state in ended for worker in state.workers if worker.node}
    for node in sorted({node for _, node in located}):
        same = [state for state, where in located if where == node]
        if len(nodes) > 1 and len(same) >= max(least, 2) and 2 * len(same) > len(located):
            text = f"{len(same)} of {len(located)} jobs that failed in {period} failed on machine {node}"
            hint = f"inspect the node: kubectl describe node {node}"
            yield _pattern(same, text, node=node, example=_cause(same[-1]).message, hint=hint)


def _node(state: JobState) -> str:
    """Return the machine of the worker that the cause names; "" if it is unknown."""
    index = _cause(state).worker
    return next((worker.node for worker in state.workers if worker.index == index), "")


def _pattern(
    same: Sequence[JobState],
    text: str,
    *,
    code: str = "",
    namespace: str = "",
    node: str = "",
    example: str,
    hint: str,
) -> Pattern:
    return Pattern(
        message=text,
        code=code,
        namespace=namespace,
        node=node,
        count=len(same),
        jobs=tuple(str(state.ref) for state in same[::-1][:_MOST_NAMES]),
        owners=tuple(sorted({state.owner for state in same if state.owner})),
        first=same[0].finished or 0.0,
        last=same[-1].finished or 0.0,
        example=example,
        hint=hint,
    )


def _summary(ended: int, failed: int, period: str) -> str:
    if not ended:
        return f"no job ended in {period}"
    return f"{failed} of {ended} job{'s' if ended > 1 else ''} that ended in {period} failed"


def _period(seconds: float) -> str:
    """Return a period for a message: `the last hour`, `the last 24 hours`, `the last 30 minutes`."""
    minutes = round(seconds / 60)
    for size, noun in ((1440, "day"), (60, "hour"), (1, "minute")):
        if minutes >= size and minutes % size == 0 and (minutes == size or size < 1440 or minutes > 2 * size):
            return f"the last {noun}" if minutes == size else f"the last {minutes // size} {noun}s"
    return f"the last {max(1, round(seconds))} seconds"
