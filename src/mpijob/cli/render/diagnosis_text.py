"""Print a diagnosis: summary, causes with their positions, timeline, checklist, numbered fixes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mpijob.cli.render import text
from mpijob.cli.render.job_table import iso
from mpijob.diagnosis.checklist import Check, Mark
from mpijob.diagnosis.report import Diagnosis, Numbered, Step
from mpijob.errors import Finding, Place, Severity

_SURE = ((0.9, "certain"), (0.7, "likely"), (0.4, "possible"), (0.0, "a guess"))
# It is no cause, so no confidence is printed.
_UNKNOWN = "UNKNOWN"
_AROUND_SECONDS = 5.0


def lines(diagnosis: Diagnosis, job_words: str, program: str) -> Iterator[str]:
    """Yield the lines. `job_words` is a command for the job with a placeholder for its verb, "" for a log."""
    yield (f"{diagnosis.job}: " if diagnosis.job else "") + text.one_line(diagnosis.summary)
    yield from _section("Causes", _causes(diagnosis, job_words))
    yield from _section("Timeline", _timeline(diagnosis.timeline))
    yield from _section("Checklist", _checklist(diagnosis.checklist))
    yield from _section("Fixes", _fixes(diagnosis.fixes, job_words))
    if diagnosis.first is not None:
        yield from ("", f"details: {program} explain {diagnosis.first.code}")


def _section(title: str, body: Iterator[str]) -> Iterator[str]:
    found = list(body)
    if found:
        yield from ("", f"{title}:", *(f"  {line}" for line in found))


def _causes(diagnosis: Diagnosis, job_words: str) -> Iterator[str]:
    for at, finding in enumerate(diagnosis.findings):
        kind = "first cause" if at == 0 else "also seen"
        how = "" if finding.code == _UNKNOWN else f"{kind}, {_sure(finding)}: "
        yield f"{how}{text.one_line(finding.message)} [{finding.code}]"
        yield from (f"    {text.one_line(quote)}" for quote in finding.evidence)
        if (where := _where(finding.place, job_words)) and finding.evidence:
            yield f"    read it in context: {where}"


def _sure(finding: Finding) -> str:
    if finding.severity is Severity.WARNING and finding.confidence < _SURE[0][0]:
        return "a warning"
    return next(word for least, word in _SURE if finding.confidence >= least)


def _where(place: Place | None, job_words: str) -> str:
    """Return the command that shows a position in the log, or file and line."""
    if place is None:
        return ""
    if place.file:
        return f"{place.file}:{place.line}"
    if not job_words or not place.time:
        return ""
    words = [job_words.format(verb="logs")]
    if place.rank is not None:
        words.append(f"--rank {place.rank}")
    elif place.worker is not None:
        words.append(f"--worker {place.worker}")
    since, until = iso(place.time - _AROUND_SECONDS), iso(place.time + _AROUND_SECONDS)
    return " ".join((*words, f"--since {since} --until {until}"))


def _timeline(steps: tuple[Step, ...]) -> Iterator[str]:
    begin = steps[0].time if steps else 0.0
    rows = [
        (f"+{text.duration(step.time - begin)}", iso(step.time), step.what, text.one_line(step.text))
        for step in steps
    ]
    if rows:
        _, *body = text.table(("", "", "", ""), rows)
        yield from body


def _checklist(checks: tuple[Check, ...]) -> Iterator[str]:
    for check in checks:
        detail = f": {text.one_line(check.detail)}" if check.detail else ""
        yield f"{check.mark.value:<8} {check.question}{detail}"
    if any(check.mark is Mark.UNKNOWN for check in checks):
        yield "(unknown: no evidence)"


def _fixes(fixes: tuple[Numbered, ...], job_words: str) -> Iterator[str]:
    for fix in fixes:
        yield f"{fix.number}. {text.one_line(fix.text)}"
        if fix.patch:
            yield f"   in the spec: {msgspec.json.encode(fix.patch).decode()}"
    first = next((fix for fix in fixes if fix.patch), None)
    if first is not None and job_words:
        again = job_words.format(verb="retry")
        copy = job_words.format(verb="clone")
        yield f"apply one: {again} --with-fix {first.number}, or {copy} --with-fix {first.number}"
