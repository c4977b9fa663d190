"""Apply the rules to the evidence, and say the first cause first.

The order of trust: decisions, then measured facts, then by time the first exit or specific line, then
time limits, then generic banners. Where only the way of an end is known, the program's own words before it are
told. When nothing is recognised, the answer says so and leads with the most telling line; it never invents a cause.
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
from mpijob.diagnosis.template_fields import fill, fill_patch, lasting, words
from mpijob.errors import Finding, Fix, Severity
from mpijob.model import Exit, MPIJob, Role

MOST_FINDINGS = 4
_JOB = re.compile(r"\bJOB\b")
_OF_A_JOB = re.compile(r"(?:: |, then |; )mpijob \w+ JOB\b.*$")
_OF_WORKERS = ("slots", "resources", "placement")
_COMMAND = re.compile(r": ((?:mpijob|kubectl|pip|chmod|mkdir) [^;]+)$")
OWN_WORDS = 0.6  # how sure it is that a program's own words name the cause
LAST_WORDS = 0.5  # and that the only error does, where a log ends with it


def explain(seen: Evidence, site: tuple[Rule, ...] = ()) -> tuple[Finding, ...]:
    """Return the findings, most likely first cause first; `site` are rules of the user's own site.

    There are none for a job that succeeded, nor for one that waits or runs without a sign of trouble.
    """
    rules = [rule for rule in (*site, *RULES) if _may(rule, seen)]
    own = sum(_may(rule, seen) for rule in site)  # a site knows its own lines best
    hits = sorted(
        (hit for hit in find(seen, rules) if not _followed(seen, hit)),
        key=lambda hit: (hit.trust, hit.place >= own, hit.weak, hit.time, hit.place),
    )
    warnings, kept = _apart(_kept(_without_survived(hits)))
    if seen.succeeded or seen.going:
        return tuple(_named(_finding(seen, hit), seen) for hit in (*kept, *warnings)[:MOST_FINDINGS])
    if kept and (kept[0].rule.only_how or kept[0].weak or kept[0].trust is Trust.GENERIC):
        kept = _in_own_words(seen, kept)
    elif kept:
        kept = _with_earlier_error(seen, kept, hits)
    found = [_finding(seen, hit) for hit in kept or _last_words(seen, warnings)]
    if not found and (unknown := _unknown(seen)) is not None:
        found.append(unknown)
    found += [_warned(_finding(seen, hit)) for hit in warnings if found]
    return tuple(_named(finding, seen) for finding in found[:MOST_FINDINGS])


def _followed(seen: Evidence, hit: Hit) -> bool:
    """Whether a launcher reports a signal of its own doing: the engine saw a rank end in another way before it."""
    first = first_rank_exit(seen)
    reported = hit.where is not None and hit.where.role == Role.LAUNCHER.value and not hit.fact
    if not reported:
        return False
    if first is None:  # a launcher says of ranks that the engine ended what it says of killed ones
        return seen.reason in ENDED_BY_ENGINE and hit.rule.id == "OOM_KILLED"
    if hit.rule.id == "OOM_KILLED" and first.killer not in (None, signal.SIGKILL):
        return True
    by_itself = first.code is not None and first.killer is None
    return by_itself and (hit.rule.crash or hit.rule.id == "OOM_KILLED")


def _without_survived(hits: list[Hit]) -> list[Hit]:
    """Return the hits without those that the run may have survived, where another one names what ended it."""
    ending = any(
        hit.trust is Trust.CAUSE and not (hit.survived or hit.weak or _names_no_cause(hit)) for hit in hits
    )
    return [hit for hit in hits if not hit.survived or hit.fact] if ending else hits


def _names_no_cause(hit: Hit) -> bool:
    return hit.rule.only_how or hit.rule.warning


def _apart(hits: list[Hit]) -> tuple[list[Hit], list[Hit]]:
    """Return warnings apart from causes: what is said in runs that end well, too, causes nothing by itself."""
    return [hit for hit in hits if hit.rule.warning], [hit for hit in hits if not hit.rule.warning]


def _warned(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, severity=Severity.WARNING)


def _in_own_words(seen: Evidence, kept: list[Hit]) -> list[Hit]:
    """Return the hits with the program's own last words first, where nothing else is known but how it ended.

    Of what only says that something failed, the most telling line is evidence, and no cause.
    """
    how = kept[0]
    told = None if seen.veiled else telling_line.find(seen, rank=how.rank)
    if told is None and (how.rule.only_how or how.weak) and not seen.veiled:
        return [_with_final_words(seen, how), *kept[1:]]
    if told is None or told.points < STRONG or told.quote in how.evidence:
        return kept
    if not how.rule.only_how and not (told.last and told.points >= EXPLICIT):
        return [msgspec.structs.replace(how, evidence=(*told.evidence[:3], *how.evidence)), *kept[1:]]
    return [
        _own(told, how),
        *(hit for hit in kept if not hit.rule.only_how and not hit.weak and hit.trust < Trust.GENERIC),
    ]


def _with_final_words(seen: Evidence, how: Hit) -> Hit:
    """Return an end with what was written last before it, where no line looks wrong.

    What a rank that exited with an error wrote to stderr last is its own report, whatever words it uses. Elsewhere the
    last line may be the reason, and proves nothing.
    """
    by_itself = how.values.get("code") and (how.fact or (how.rule.id == "MPI_ABORT" and how.rank is not None))
    final = telling_line.final_words(seen, how.rank, how.time) if by_itself else None
    if final is not None:
        values = {"final": final.text, "code": how.values["code"]}
        return Hit(
            PROGRAM_ERROR,
            -1,
            final.time,
            how.worker,
            how.rank,
            values,
            final.evidence,
            LAST_WORDS,
            final.place,
        )
    before = telling_line.last_before(seen, how.time)
    return msgspec.structs.replace(how, evidence=(*before, *how.evidence))


def _with_earlier_error(seen: Evidence, kept: list[Hit], hits: list[Hit]) -> list[Hit]:
    """Return the hits with an error that was written before the first of them, and that no rule knows.

    It is evidence. Before a crash it is the cause: a process that has reported an error and crashes then, crashes
    because of it. A complaint that does not call itself an error is evidence there.
    """
    first = kept[0]
    if seen.veiled or (first.fact and not first.rule.crash):
        return kept
    known = frozenset(quote for hit in hits for quote in hit.evidence)
    told = telling_line.find(seen, before=first.time, known=known)
    if told is None or told.points < EXPLICIT or (first.rule.crash and not told.explicit):
        before = telling_line.complaints_before(seen, first.time) if first.rule.crash else ()
        return [msgspec.structs.replace(first, evidence=(*before, *first.evidence)), *kept[1:]]
    if first.rule.crash:
        return [_own(told, first), *kept]
    return [msgspec.structs.replace(first, evidence=(told.quote, *first.evidence)), *kept[1:]]


def _last_words(seen: Evidence, warnings: list[Hit]) -> list[Hit]:
    """Return the only error of a run that failed, where its log ends with it and no rule knows it.

    What is written in runs that end well, too, is none.
    """
    if seen.veiled or seen.outcome_unseen:
        return []
    harmless = frozenset(quote for hit in warnings for quote in hit.evidence)
    told = telling_line.find(seen, known=harmless)
    if told is None or not _ends_with(told, seen):
        return []
    values = {"last": told.text}
    return [
        Hit(
            LAUNCHER_ERROR if told.of_launcher else PROGRAM_ERROR,
            -1,
            told.time,
            told.worker,
            told.rank,
            values,
            told.evidence,
            LAST_WORDS,
            told.place,
        )
    ]


def _ends_with(told: telling_line.Telling, seen: Evidence) -> bool:
    """Whether a run ended with an error line; a complaint without the word counts where a failure is known."""
    known = seen.launcher is not None or told.reported
    if not told.first or told.points < (COMPLAINT if known or told.very_last else EXPLICIT):
        return False
    if told.of_launcher and not told.boxed and not known:
        return told.very_last  # a library complains of much that a run survives
    return told.last or ((known or seen.shown_end is False) and told.nearly_last)


def _own(told: telling_line.Telling, how: Hit) -> Hit:
    """Return the program's own words as a cause, of the rank that wrote them."""
    values = {"error": told.text, "code": how.values.get("code")}
    rank, worker = (told.rank, told.worker) if told.rank is not None else (how.rank, how.worker)
    rule = LAUNCHER_ERROR if told.of_launcher else PROGRAM_ERROR
    return Hit(rule, -1, told.time, worker, rank, values, told.evidence, OWN_WORDS, told.place)


def _may(rule: Rule, seen: Evidence) -> bool:
    """Whether a rule may fire: of a job that goes on, only what is known or worth a warning is told."""
    if seen.going:
        return rule.while_running or bool(rule.facts)
    return not seen.succeeded or _doubts_success(rule, seen)


def _named(finding: Finding, seen: Evidence) -> Finding:
    """Return the finding with commands that can be copied: they name the job; without one they are left out."""
    if seen.bare:
        bare = tuple(msgspec.structs.replace(fix, text=_OF_A_JOB.sub("", fix.text), command="")
                     if _OF_A_JOB.search(fix.text) else fix for fix in finding.fixes)  # fmt: skip
        told = tuple({fix.text: fix for fix in reversed(bare)}.values())[
            ::-1
        ]  # without those that became the same
        return msgspec.structs.replace(finding, hint=_OF_A_JOB.sub("", finding.hint), fixes=told)
    name = seen.spec.name
    fixes = tuple(
        msgspec.structs.replace(fix, text=_JOB.sub(name, fix.text), command=_JOB.sub(name, fix.command))
        for fix in finding.fixes
    )
    return msgspec.structs.replace(finding, hint=_JOB.sub(name, finding.hint), fixes=fixes)


def summary(failed: int, total: int) -> str:
    """Return the job's failure in one line: `Failed - 1/8 workers failed`."""
    return f"Failed - {failed}/{total} workers failed"


def fixed(job: MPIJob, fix: Fix) -> MPIJob:
    """Return the job with a fix applied; raise msgspec.ValidationError if the patch does not fit."""
    return codec.convert(merged(msgspec.to_builtins(job), fix.patch), MPIJob)


def _doubts_success(rule: Rule, seen: Evidence) -> bool:
    """Whether a rule may fire although all ended with 0; a proved world silences what was only said."""
    return rule.even_on_success and (rule.trust is Trust.FACT or not seen.world_proved)


def _kept(hits: list[Hit]) -> list[Hit]:
    """Return one hit a rule, without those that say less than another does."""
    first: dict[str, Hit] = {}
    for hit in hits:
        first[hit.rule.id] = _joined(first[hit.rule.id], hit) if hit.rule.id in first else hit
    idle = [hit for hit in first.values() if any(_better(other, hit) for other in first.values())]
    rest = [_placed(hit, idle) for hit in first.values() if hit not in idle]
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
    """Return the first hit of a rule with what only a later one knew."""
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


def _placed(hit: Hit, idle: list[Hit]) -> Hit:
    """Return a hit with the rank that a weaker report of the same failure names, on the same worker.

    What happened to the launcher happened to no rank: those that end with it only follow.
    """
    if hit.rank is not None or hit.trust is not Trust.CAUSE or hit.rule.of_launcher:
        return hit
    ranks = (other for other in idle if other.rank is not None and _better(hit, other))
    named = next((other for other in ranks if hit.worker in (None, other.worker)), None)
    return hit if named is None else msgspec.structs.replace(hit, rank=named.rank, worker=named.worker)


def _better(other: Hit, hit: Hit) -> bool:
    """Whether another finding makes this one idle: the same failure, said more exactly."""
    to_all = (
        "*" in hit.rule.yields_to and "*" not in other.rule.yields_to
    )  # two such rules would silence each other
    if other is hit or not (to_all or other.rule.id in hit.rule.yields_to):
        return False
    if other.trust is Trust.GENERIC and hit.trust < Trust.GENERIC:
        return False
    if other.trust is Trust.LIMIT and not other.fact and hit.rule.only_how and hit.time < other.time:
        return False  # what was cancelled after a rank had ended was cancelled because of that
    strangers = other.rank is not None and hit.rank is not None and other.rank != hit.rank
    return not strangers or other.trust < hit.trust or other.time <= hit.time + TOGETHER_SECONDS


def _finding(seen: Evidence, hit: Hit) -> Finding:
    rule, values = hit.rule, words(seen, hit.worker, hit.rank, hit.values)
    causes = (fill(cause, values) for cause in rule.causes)
    group = "" if hit.worker is None or seen.bare else seen.spec.part_of(hit.worker).group
    fixes = tuple(fix for fix in _fixes(rule, values, seen.spec, group) if not _applied(seen, fix))
    said = values.get("said")
    return Finding(
        code=rule.id,
        message=next((cause for cause in causes if cause), rule.title),
        hint=fixes[0].text if fixes else "",
        field="groups" if group and rule.field.partition(".")[0] in _OF_WORKERS else rule.field,
        worker=hit.worker,
        rank=hit.rank,
        severity=Severity.WARNING if seen.succeeded or seen.going else Severity.ERROR,
        evidence=(*(hit.evidence or _facts_as_evidence(seen, hit, values)), *([said] if said else [])),
        fixes=fixes,
        confidence=hit.sure,
        place=hit.where,
    )


def _fixes(rule: Rule, values: Mapping[str, Any], spec: MPIJob, group: str) -> Iterator[Fix]:
    for remedy in rule.remedies:
        patch = of_group(spec, group, fill_patch(remedy.patch, values))
        if (text := fill(remedy.text, values)) and not _incomplete(patch):
            command = _COMMAND.search(text)
            yield Fix(text, patch, command[1] if command else "")


def of_group(spec: MPIJob, group: str, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a patch of a job, with what it changes of one worker changed in that worker's group."""
    own = {name: patch[name] for name in _OF_WORKERS if name in patch}
    if not own or not group:
        return dict(patch)
    part = next(part.job for part in spec.parts if part.group == group)
    changed = {name: merged(msgspec.to_builtins(getattr(part, name)), value) for name, value in own.items()}
    groups = [
        one | changed if one["name"] == group else one
        for one in (msgspec.to_builtins(each) for each in spec.groups)
    ]
    return {name: value for name, value in patch.items() if name not in own} | {"groups": groups}


def _applied(seen: Evidence, fix: Fix) -> bool:
    """Whether a job has already what a fix would change."""
    spec = msgspec.to_builtins(seen.spec) if fix.patch and not seen.bare else {}
    return bool(spec) and merged(spec, fix.patch) == spec


def _incomplete(patch: Any) -> bool:
    if isinstance(patch, (dict, list)):
        return any(_incomplete(value) for value in (patch.values() if isinstance(patch, dict) else patch))
    return patch is None


def _facts_as_evidence(seen: Evidence, hit: Hit, values: Mapping[str, Any]) -> tuple[str, ...]:
    lines = ("memory: peak {peak} of {limit}", "ended by {signal_name}", "exit code {code}", "{message}")
    told = [line for template in lines if (line := fill(template, values))]
    several = "," in (there := values.get("ranks_there") or "") or "-" in there
    ranks = f"rank{'s' if several else ''} {there}" if there and hit.rank is None else None
    whose = [part for part in (ranks, fill("on {node}", values)) if part]
    known = seen.started is not None and hit.time
    when = [f"{lasting(max(0.0, hit.time - (seen.started or 0.0)))} after the start"] if known else []
    about = "; ".join((*when, *whose))
    return (*told, *((about,) if about and told else ()))


def _unknown(seen: Evidence) -> Finding | None:
    """Return that the cause is not recognised, with the most telling line; nothing where no failure can be seen."""
    told = telling_line.find(seen)
    if told is None and seen.outcome_unseen:
        return None
    by_log_alone = seen.bare and seen.launcher is None and not seen.ranks
    unseen = seen.outcome_unseen or (by_log_alone and told is not None and not told.reported)
    values = {"how": _how(seen.launcher), "message": seen.message or None, "line": None if told is None else told.text,
              "unseen": "" if unseen else None}  # fmt: skip
    message = next(text for cause in UNKNOWN.causes if (text := fill(cause, values)) is not None)
    fixes = tuple(Fix(text) for remedy in UNKNOWN.remedies if (text := fill(remedy.text, values)))
    return Finding(
        code=UNKNOWN.id,
        message=message,
        hint=fixes[0].text,
        severity=Severity.ERROR,
        evidence=_last_lines(seen) if told is None else told.evidence,
        fixes=fixes,
        confidence=0.0,
        place=None if told is None else told.place,
        rank=None if told is None else told.rank,
        worker=None if told is None else told.worker,
    )


def _how(launcher: Exit | None) -> str | None:
    if launcher is None:
        return None
    return f"signal {launcher.signal}" if launcher.signal else f"exit code {launcher.code}"


def _last_lines(seen: Evidence) -> tuple[str, ...]:
    """Return the last lines of the first stream that has any."""
    return next((quotes for one in streams(seen) if (quotes := one.quote(one.count - 5, one.count))), ())


def merged(spec: Any, patch: Any) -> Any:
    """Return plain values with a patch laid over them: mappings are joined, all else is replaced."""
    if not (isinstance(spec, dict) and isinstance(patch, dict)):
        return patch
    return spec | {key: merged(spec.get(key), value) for key, value in patch.items()}
