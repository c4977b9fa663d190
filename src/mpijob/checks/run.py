"""The list of all rules, and their application to a job: types first, then every rule with well-typed fields."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from mpijob import codec
from mpijob.checks import (
    commands,
    custom_launcher,
    elastic,
    environment,
    groups,
    launching,
    names,
    scheduling,
    size,
    volumes,
)
from mpijob.checks.rule import Limits, Rule, rule
from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.model import MPIJob
from mpijob.model.spec.type_check import Problem, problems

RULES: tuple[Rule, ...] = (
    rule("BAD_NAME", "name workers", names.name),
    rule("BAD_NAMESPACE", "namespace", names.namespace),
    rule("BAD_QUEUE", "queue", names.queue),
    rule("BAD_WORKERS", "workers", size.workers),
    rule("BAD_GROUPS", "groups workers resources elastic", groups.groups),
    rule("BAD_SLOTS", "slots groups", groups.each(size.slots)),
    rule("BAD_RANKS", "workers slots ranks groups programs launch", size.ranks),
    rule("BAD_ELASTIC", "elastic workers slots ranks programs command args", elastic.elastic),
    rule("BAD_CORES", "cores_per_rank slots resources groups", groups.each(size.cores)),
    rule("BAD_GPUS", "resources launcher groups", groups.each(size.gpus)),
    rule("SLOTS_AND_GPUS", "slots resources groups", groups.each(size.slots_against_gpus)),
    rule("BAD_AMOUNT", "resources launcher groups", groups.each(size.amounts)),
    rule("BAD_COMMAND", "command args programs script elastic", commands.command),
    rule("BAD_PROGRAMS", "programs ranks workers slots groups", commands.programs),
    rule(
        "OWN_LAUNCHER_RANKS",
        "command args programs workers slots ranks groups launch elastic",
        commands.own_ranks,
    ),
    rule("OWN_LAUNCHER_HOSTS", "command args elastic", commands.own_hosts),
    rule("OWN_LAUNCHER_FAMILY", "command args mpi", commands.own_family),
    rule("BAD_ENVIRONMENT", "env programs", environment.variables),
    rule("BAD_SECRET", "secrets env", environment.secrets),
    rule("BAD_VOLUME", "volumes", volumes.volumes),
    rule("BAD_MODEL", "model volumes name", volumes.model),
    rule("BAD_CODE", "code", volumes.code),
    rule("BAD_LAYOUT", "launch mpi slots groups workers", launching.layout),
    rule("BAD_SETTINGS", "launch mpi", launching.settings),
    rule("BAD_FLAGS", "launch mpi", launching.flags),
    rule("BAD_CUSTOM_LAUNCH", "launch mpi", custom_launcher.custom),
    rule("BAD_PRESET", "presets", scheduling.presets),
    rule("BAD_PLACEMENT", "placement groups", groups.each(scheduling.placement)),
    rule("BAD_NETWORK", "network namespace", scheduling.network),
    rule("BAD_PRIORITY", "priority", scheduling.priority),
    rule("BAD_RETRY", "retry", scheduling.retry),
    rule("BAD_CONCURRENCY", "concurrency", scheduling.concurrency),
    rule("BAD_NOTICE", "notify", scheduling.notices),
    rule(
        "BAD_TIME",
        "gang_timeout_seconds deadline_seconds grace_seconds keep_on_failure_seconds retention ttl_seconds",
        scheduling.times,
    ),
    rule("BAD_SIGNAL", "signal deadline_seconds", scheduling.signal),
    rule("BAD_PULL_SECRET", "pull_secrets", names.pull_secrets),
    rule("BAD_PULL_POLICY", "pull_policy", names.pull_policy),
    rule("BAD_AFTER", "after name", names.after),
    rule("BAD_LABEL", "labels cost", names.labels),
    rule("BAD_TEXT", "owner image description", names.texts),
)
_TYPE_CODES = frozenset({"WRONG_TYPE", "UNKNOWN_WORD", "UNKNOWN_FIELD", "MISSING_FIELD"})
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTICE: 2}
_TEXT_LIKE = (
    ("datetime", ("datetime", "date", "time", "timedelta")),
    ("uuid", ("UUID",)),
    ("decimal", ("Decimal",)),
)


def codes() -> frozenset[str]:
    """Return every code of a check."""
    return _TYPE_CODES | {one.code for one in RULES}


def run(job: MPIJob, *, max_workers: int = 100) -> tuple[Finding, ...]:
    """Return all findings about a job: errors first, then warnings, then notices."""
    wrong = () if _typed(job) is not None else problems(job) or (_unexplained(job),)
    bad = {str(problem.path[0]) for problem in wrong if problem.path}
    typed = _typed(job) if not wrong else _without(job, bad)
    found = [_finding(problem) for problem in wrong]
    if typed is not None:
        found += _judged(typed, bad, Limits(max_workers))
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))


def normal(job: MPIJob) -> MPIJob:
    """Return the job with all values in the types of the spec (`mpi="mpich"` as text, lists as tuples).

    Raise InvalidJob for a value that cannot be converted.
    """
    typed = _typed(job)
    if typed is None:
        wrong = problems(job) or (_unexplained(job),)
        raise InvalidJob.of(tuple(_finding(problem) for problem in wrong))
    return typed


def _judged(job: MPIJob, bad: set[str], limits: Limits) -> list[Finding]:
    return [
        msgspec.structs.replace(finding, code=one.code)
        for one in RULES
        if not one.reads & bad
        for finding in one.check(job, limits)
    ]


def _typed(job: MPIJob) -> MPIJob | None:
    try:
        return codec.convert(msgspec.to_builtins(job, builtin_types=_kept()), MPIJob)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError):
        return None


# A type whose module is not imported cannot be in a job, and importing it would delay every command.
def _kept() -> tuple[type, ...]:
    """Return the types that msgspec would convert to text, so that they are refused instead."""
    loaded = [(sys.modules[module], names) for module, names in _TEXT_LIKE if module in sys.modules]
    return (
        bytes,
        bytearray,
        memoryview,
        *(getattr(module, name) for module, names in loaded for name in names),
    )


def _without(job: MPIJob, bad: set[str]) -> MPIJob | None:
    """Return the job with defaults for its invalid fields, so that rules can check the others."""
    kept: dict[str, Any] = {name: getattr(job, name) for name in job.__struct_fields__ if name not in bad}
    kept.setdefault("name", "job")
    return _typed(MPIJob(**kept))


def _finding(problem: Problem) -> Finding:
    return Finding(code=problem.code, message=problem.message, hint=problem.hint, field=problem.field)


def _unexplained(job: MPIJob) -> Problem:
    """Return a generic finding, for a value that only msgspec refuses."""
    try:
        codec.convert(msgspec.to_builtins(job, builtin_types=_kept()), MPIJob)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as reason:
        return Problem("WRONG_TYPE", (), str(reason))
    return Problem("WRONG_TYPE", (), "the job cannot be read")
