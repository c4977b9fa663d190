"""Applies the rules to the evidence and ranks the findings, the first cause first.

The order of trust: decisions, then measured facts, then by time the first exit or specific line, then time
limits, then generic banners. If only the way of an end is known, the program's own last lines are quoted. If
no rule matches, the finding says so and quotes the most relevant line; a cause is never invented.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mpijob import codec
from mpijob.diagnosis.evidence import Evidence
from mpijob.diagnosis.logs import telling_line
from mpijob.diagnosis.logs.error_lines import COMPLAINT, EXPLICIT, STRONG
from mpijob.diagnosis.logs.log_index import streams
from mpijob.diagnosis.matcher import Hit, find
from mpijob.diagnosis.rule import Rule, Trust
from mpijob.diagnosis.rules import LAUNCHER_ERROR, PROGRAM_ERROR, RULES, UNKNOWN
from mpijob.diagnosis.signals import ENDED_BY_ENGINE, TOGETHER_SECONDS, first_rank_exit
from mpijob.diagnosis.template_fields import duration_text, field_values, fill, fill_patch
from mpijob.errors import Finding, Fix, Severity
from mpijob.model import Exit, MPIJob, Role

MOST_FINDINGS = 4
_JOB = re.compile(r"\bJOB\b")
_OF_A_JOB = re.compile(r"(?:: |, then |; )mpijob \w+ JOB\b.*$")
_OF_WORKERS = ("slots", "resources", "placement")
_COMMAND = re.compile(r": ((?:mpijob|kubectl|pip|chmod|mkdir) [^;]+)$")
# Confidence that a program's own error line names the cause, and that the only error at the end of a log does.
OWN_WORDS = 0.6
LAST_WORDS = 0.5


def explain(seen: Evidence, site: tuple[Rule, ...] = ()) -> tuple[Finding, ...]:
    """Return the findings, the most likely first cause first; `site` are rules of the user's site.

    There are none for a job that succeeded, nor for a waiting or running one without a problem.
    """
    rules = [rule for rule in (*site, *RULES) if _applies(rule, seen)]
    # Site rules come first within a level of trust: a site knows its own messages best.
    own = sum(_applies(rule, seen) for rule in site)
    hits = sorted(
        (hit for hit in find(seen, rules) if not _is_launcher_echo(seen, hit)),
        key=lambda hit: (hit.trust, hit.place >= own, hit.weak, hit.time, hit.place),
    )
    warnings, kept = _split_warnings(_deduplicated(_without_survived(hits)))
    if seen.succeeded or seen.going:
        return tuple(_with_job_name(_finding(seen, hit), seen) for hit in (*kept, *warnings)[:MOST_FINDINGS])
    if kept and (kept[0].rule.only_how or kept[0].weak or kept[0].trust is Trust.GENERIC):
        kept = _with_own_error_first(seen, kept)
    elif kept:
        kept = _with_earlier_error(seen, kept, hits)
    found = [_finding(seen, hit) for hit in kept or _only_error(seen, warnings)]
    if not found and (unknown := _unknown(seen)) is not None:
        found.append(unknown)
    found += [_as_warning(_finding(seen, hit)) for hit in warnings if found]
    return tuple(_with_job_name(finding, seen) for finding in found[:MOST_FINDINGS])


def _is_launcher_echo(seen: Evidence, hit: Hit) -> bool:
    # Whether a launcher reports a signal that it sent itself: the engine observed an earlier end of another
    # kind.
    first = first_rank_exit(seen)
    reported = hit.where is not None and hit.where.role == Role.LAUNCHER.value and not hit.fact
    if not reported:
        return False
    # Launchers report ranks that the engine ended as killed ones.
    if first is None:
        return seen.reason in ENDED_BY_ENGINE and hit.rule.id == "OOM_KILLED"
    if hit.rule.id == "OOM_KILLED" and first.killer not in (None, signal.SIGKILL):
        return True
    by_itself = first.code is not None and first.killer is None
    return by_itself and (hit.rule.crash or hit.rule.id == "OOM_KILLED")


def _without_survived(hits: list[Hit]) -> list[Hit]:
    # Lines that the run may have survived do not count if another one shows what ended it.
    ending = any(
        hit.trust is Trust.CAUSE and not (hit.survived or hit.weak or _names_no_cause(hit)) for hit in hits
    )
    return [hit for hit in hits if not hit.survived or hit.fact] if ending else hits


def _names_no_cause(hit: Hit) -> bool:
    return hit.rule.only_how or hit.rule.warning


def _split_warnings(hits: list[Hit]) -> tuple[list[Hit], list[Hit]]:
    # Lines that also occur in successful runs cause nothing by themselves.
    return [hit for hit in hits if hit.rule.warning], [hit for hit in hits if not hit.rule.warning]


def _as_warning(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, severity=Severity.WARNING)


def _with_own_error_first(seen: Evidence, kept: list[Hit]) -> list[Hit]:
    # If only the way of the end is known, the program's last error comes first. A line that only says that
    # something failed is evidence, not a cause.
    end = kept[0]
    line = None if seen.veiled else telling_line.find(seen, rank=end.rank)
    if line is None and (end.rule.only_how or end.weak) and not seen.veiled:
        return [_with_final_words(seen, end), *kept[1:]]
    if line is None or line.points < STRONG or line.quote in end.evidence:
        return kept
    if not end.rule.only_how and not (line.last and line.points >= EXPLICIT):
        return [msgspec.structs.replace(end, evidence=(*line.evidence[:3], *end.evidence)), *kept[1:]]
    return [
        _own_error(line, end),
        *(hit for hit in kept if not hit.rule.only_how and not hit.weak and hit.trust < Trust.GENERIC),
    ]


def _with_final_words(seen: Evidence, end: Hit) -> Hit:
    # What a failed rank wrote last to stderr is its own report, in whatever words. Elsewhere the last line
    # may be the reason, but proves nothing.
    by_itself = end.values.get("code") and (end.fact or (end.rule.id == "MPI_ABORT" and end.rank is not None))
    final = telling_line.final_words(seen, end.rank, end.time) if by_itself else None
    if final is not None:
        values = {"final": final.text, "code": end.values["code"]}
        return Hit(
            PROGRAM_ERROR,
            -1,
            final.time,
            end.worker,
            end.rank,
            values,
            final.evidence,
            LAST_WORDS,
            final.place,
        )
    before = telling_line.last_before(seen, end.time)
    return msgspec.structs.replace(end, evidence=(*before, *end.evidence))


def _with_earlier_error(seen: Evidence, kept: list[Hit], hits: list[Hit]) -> list[Hit]:
    # An earlier error that no rule knows is evidence. Before a crash it is the cause: a process that reported
    # an error and then crashes, crashes because of it. A complaint that is not called an error is evidence
    # only.
    first = kept[0]
    if seen.veiled or (first.fact and not first.rule.crash):
        return kept
    known = frozenset(quote for hit in hits for quote in hit.evidence)
    line = telling_line.find(seen, before=first.time, known=known)
    if line is None or line.points < EXPLICIT or (first.rule.crash and not line.explicit):
        before = telling_line.complaints_before(seen, first.time) if first.rule.crash else ()
        return [msgspec.structs.replace(first, evidence=(*before, *first.evidence)), *kept[1:]]
    if first.rule.crash:
        return [_own_error(line, first), *kept]
    return [msgspec.structs.replace(first, evidence=(line.quote, *first.evidence)), *kept[1:]]


def _only_error(seen: Evidence, warnings: list[Hit]) -> list[Hit]:
    # The only error of a failed run, if its log ends with it. Lines that also occur in successful runs do not
    # count.
    if seen.veiled or seen.outcome_unseen:
        return []
    harmless = frozenset(quote for hit in warnings for quote in hit.evidence)
    line = telling_line.find(seen, known=harmless)
    if line is None or not _ends_with(line, seen):
        return []
    values = {"last": line.text}
    return [
        Hit(
            LAUNCHER_ERROR if line.of_launcher else PROGRAM_ERROR,
            -1,
            line.time,
            line.worker,
            line.rank,
            values,
            line.evidence,
            LAST_WORDS,
            line.place,
        )
    ]


def _ends_with(line: telling_line.Telling, seen: Evidence) -> bool:
    # A complaint without the word error counts only if a failure is known.
    known = seen.launcher is not None or line.reported
    if not line.first or line.points < (COMPLAINT if known or line.very_last else EXPLICIT):
        return False
    if line.of_launcher and not line.boxed and not known:
        # Libraries complain about much that a run survives.
        return line.very_last
    return line.last or ((known or seen.shown_end is False) and line.nearly_last)


def _own_error(line: telling_line.Telling, end: Hit) -> Hit:
    values = {"error": line.text, "code": end.values.get("code")}
    rank, worker = (line.rank, line.worker) if line.rank is not None else (end.rank, end.worker)
    rule = LAUNCHER_ERROR if line.of_launcher else PROGRAM_ERROR
    return Hit(rule, -1, line.time, worker, rank, values, line.evidence, OWN_WORDS, line.place)


def _applies(rule: Rule, seen: Evidence) -> bool:
    # For a job that has not ended, only facts and rules marked `while_running` apply.
    if seen.going:
        return rule.while_running or bool(rule.facts)
    return not seen.succeeded or _doubts_success(rule, seen)


def _with_job_name(finding: Finding, seen: Evidence) -> Finding:
    # Commands name the job, so that they can be copied; for a log without a job they are removed.
    if seen.bare:
        bare = tuple(msgspec.structs.replace(fix, text=_OF_A_JOB.sub("", fix.text), command="")
                     if _OF_A_JOB.search(fix.text) else fix for fix in finding.fixes)  # fmt: skip
        # Without duplicates: some fixes differed only in the removed command.
        unique = tuple({fix.text: fix for fix in reversed(bare)}.values())[::-1]
        return msgspec.structs.replace(finding, hint=_OF_A_JOB.sub("", finding.hint), fixes=unique)
    name = seen.spec.name
    fixes = tuple(
        msgspec.structs.replace(fix, text=_JOB.sub(name, fix.text), command=_JOB.sub(name, fix.command))
        for fix in finding.fixes
    )
    return msgspec.structs.replace(finding, hint=_JOB.sub(name, finding.hint), fixes=fixes)


def summary(failed: int, total: int) -> str:
    """Return the failure in one line: `Failed - 1/8 workers failed`."""
    return f"Failed - {failed}/{total} workers failed"


def fixed(job: MPIJob, fix: Fix) -> MPIJob:
    """Return the job with a fix applied; raise msgspec.ValidationError if the patch does not fit."""
    return codec.convert(merged(msgspec.to_builtins(job), fix.patch), MPIJob)


def _doubts_success(rule: Rule, seen: Evidence) -> bool:
    # If the world was proved, lines alone do not contradict the success.
    return rule.even_on_success and (rule.trust is Trust.FACT or not seen.world_proved)


def _deduplicated(hits: list[Hit]) -> list[Hit]:
    # One hit per rule, without those that another rule explains better.
    first: dict[str, Hit] = {}
    for hit in hits:
        first[hit.rule.id] = _joined(first[hit.rule.id], hit) if hit.rule.id in first else hit
    idle = [hit for hit in first.values() if any(_is_better(other, hit) for other in first.values())]
    rest = [_with_rank(hit, idle) for hit in first.values() if hit not in idle]
    reports = tuple(quote for hit in rest if hit.trust is Trust.GENERIC for quote in hit.evidence)
    specific = [
        msgspec.structs.replace(hit, evidence=reports)
        if hit.trust is Trust.LIMIT and not hit.evidence
        else hit
        for hit in rest
        if hit.trust < Trust.GENERIC and not hit.rule.warning
    ]
    warnings = [hit for hit in rest if hit.rule.warning]
    return [*(specific or [hit for hit in rest if hit not in warnings][:1]), *warnings]


def _joined(first: Hit, later: Hit) -> Hit:
    # The first hit, completed with what only a later one knows.
    if first.rank is not None and later.rank is not None and first.rank != later.rank:
        return first
    return msgspec.structs.replace(
        first,
        rank=later.rank if first.rank is None else first.rank,
        worker=later.worker if first.worker is None else first.worker,
        values={**later.values, **{name: value for name, value in first.values.items() if value is not None}},
        evidence=first.evidence or later.evidence,
        where=first.where or later.where,
        fact=first.fact or later.fact,
    )


def _with_rank(hit: Hit, idle: list[Hit]) -> Hit:
    # With the rank that a weaker report of the same failure names, on the same worker. A failure of the
    # launcher has no rank: ranks that end with it only follow.
    if hit.rank is not None or hit.trust is not Trust.CAUSE or hit.rule.of_launcher:
        return hit
    ranks = (other for other in idle if other.rank is not None and _is_better(hit, other))
    named = next((other for other in ranks if hit.worker in (None, other.worker)), None)
    return hit if named is None else msgspec.structs.replace(hit, rank=named.rank, worker=named.worker)


def _is_better(other: Hit, hit: Hit) -> bool:
    # Whether another hit is the same failure, described more exactly.
    # Two rules that yield to all would suppress each other.
    to_all = "*" in hit.rule.yields_to and "*" not in other.rule.yields_to
    if other is hit or not (to_all or other.rule.id in hit.rule.yields_to):
        return False
    if other.trust is Trust.GENERIC and hit.trust < Trust.GENERIC:
        return False
    if other.trust is Trust.LIMIT and not other.fact and hit.rule.only_how and hit.time < other.time:
        # A job that was cancelled after a rank's end was cancelled because of that.
        return False
    strangers = other.rank is not None and hit.rank is not None and other.rank != hit.rank
    return not strangers or other.trust < hit.trust or other.time <= hit.time + TOGETHER_SECONDS


def _finding(seen: Evidence, hit: Hit) -> Finding:
    rule, values = hit.rule, field_values(seen, hit.worker, hit.rank, hit.values)
    causes = (fill(cause, values) for cause in rule.causes)
    group = "" if hit.worker is None or seen.bare else seen.spec.part_of(hit.worker).group
    fixes = tuple(fix for fix in _fixes(rule, values, seen.spec, group) if not _is_applied(seen, fix))
    last_lines = values.get("said")
    return Finding(
        code=rule.id,
        message=next((cause for cause in causes if cause), rule.title),
        hint=fixes[0].text if fixes else "",
        field="groups" if group and rule.field.partition(".")[0] in _OF_WORKERS else rule.field,
        worker=hit.worker,
        rank=hit.rank,
        severity=Severity.WARNING if seen.succeeded or seen.going else Severity.ERROR,
        evidence=(
            *(hit.evidence or _facts_as_evidence(seen, hit, values)),
            *([last_lines] if last_lines else []),
        ),
        fixes=fixes,
        confidence=hit.sure,
        place=hit.where,
    )


def _fixes(rule: Rule, values: Mapping[str, Any], spec: MPIJob, group: str) -> Iterator[Fix]:
    for remedy in rule.remedies:
        patch = of_group(spec, group, fill_patch(remedy.patch, values))
        if (text := fill(remedy.text, values)) and not _is_incomplete(patch):
            command = _COMMAND.search(text)
            yield Fix(text, patch, command[1] if command else "")


def of_group(spec: MPIJob, group: str, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a patch of a job; changes of the worker fields are moved to the worker's group."""
    of_workers = {name: patch[name] for name in _OF_WORKERS if name in patch}
    if not of_workers or not group:
        return dict(patch)
    part = next(part.job for part in spec.parts if part.group == group)
    changed = {
        name: merged(msgspec.to_builtins(getattr(part, name)), value) for name, value in of_workers.items()
    }
    groups = [
        group_document | changed if group_document["name"] == group else group_document
        for group_document in (msgspec.to_builtins(declared) for declared in spec.groups)
    ]
    return {name: value for name, value in patch.items() if name not in of_workers} | {"groups": groups}


def _is_applied(seen: Evidence, fix: Fix) -> bool:
    spec = msgspec.to_builtins(seen.spec) if fix.patch and not seen.bare else {}
    return bool(spec) and merged(spec, fix.patch) == spec


def _is_incomplete(patch: Any) -> bool:
    if isinstance(patch, (dict, list)):
        return any(_is_incomplete(value) for value in (patch.values() if isinstance(patch, dict) else patch))
    return patch is None


def _facts_as_evidence(seen: Evidence, hit: Hit, values: Mapping[str, Any]) -> tuple[str, ...]:
    lines = ("memory: peak {peak} of {limit}", "ended by {signal_name}", "exit code {code}", "{message}")
    known_lines = [line for template in lines if (line := fill(template, values))]
    is_plural = "," in (ranks_there := values.get("ranks_there") or "") or "-" in ranks_there
    ranks = f"rank{'s' if is_plural else ''} {ranks_there}" if ranks_there and hit.rank is None else None
    subject = [part for part in (ranks, fill("on {node}", values)) if part]
    known = seen.started is not None and hit.time
    when = [f"{duration_text(max(0.0, hit.time - (seen.started or 0.0)))} after the start"] if known else []
    context = "; ".join((*when, *subject))
    return (*known_lines, *((context,) if context and known_lines else ()))


def _unknown(seen: Evidence) -> Finding | None:
    # Nothing if the log shows no failure at all.
    line = telling_line.find(seen)
    if line is None and seen.outcome_unseen:
        return None
    by_log_alone = seen.bare and seen.launcher is None and not seen.ranks
    unseen = seen.outcome_unseen or (by_log_alone and line is not None and not line.reported)
    values = {"how": _how(seen.launcher), "message": seen.message or None, "line": None if line is None else line.text,
              "unseen": "" if unseen else None}  # fmt: skip
    message = next(text for cause in UNKNOWN.causes if (text := fill(cause, values)) is not None)
    fixes = tuple(Fix(text) for remedy in UNKNOWN.remedies if (text := fill(remedy.text, values)))
    return Finding(
        code=UNKNOWN.id,
        message=message,
        hint=fixes[0].text,
        severity=Severity.ERROR,
        evidence=_last_lines(seen) if line is None else line.evidence,
        fixes=fixes,
        confidence=0.0,
        place=None if line is None else line.place,
        rank=None if line is None else line.rank,
        worker=None if line is None else line.worker,
    )


def _how(launcher: Exit | None) -> str | None:
    if launcher is None:
        return None
    return f"signal {launcher.signal}" if launcher.signal else f"exit code {launcher.code}"


def _last_lines(seen: Evidence) -> tuple[str, ...]:
    return next(
        (quotes for stream in streams(seen) if (quotes := stream.quote(stream.count - 5, stream.count))), ()
    )


def merged(spec: Any, patch: Any) -> Any:
    """Return plain values with a patch applied: mappings are merged, all else is replaced."""
    if not (isinstance(spec, dict) and isinstance(patch, dict)):
        return patch
    return spec | {key: merged(spec.get(key), value) for key, value in patch.items()}
