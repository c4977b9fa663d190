"""Submit a job: check, admit, plan, and hand over to the engine.

The stages do not import each other; this module calls them in order. The dry run is the first half of a
submit, never a separate path. `resubmit` handles existing jobs (retry, clone, replace), `wait` waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mpijob.errors import Finding, InvalidJob, MpiJobError, Severity
from mpijob.model import Facts, Identity, JobRef, JobState, MPIJob, Plan
from mpijob.model.status.audit import Verb

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend


def prepare(job: MPIJob, who: Identity, backend: Backend, *, max_workers: int, replaces: str = "") -> Plan:
    """Return exactly what would run; this is the dry run, and the first half of submitting.

    `replaces` is the name of a job that this one replaces, so that it does not count as taken.
    """
    # Imported here because commands such as `list` must start quickly.
    from mpijob import checks

    remarks = refuse_unsound(job, max_workers=max_workers)
    job = checks.normal(job)
    if job.presets:
        from mpijob.formats.jobfile import presets

        # Presets become plain fields: what they mean depends on the devices of this engine.
        job, preset_notices = presets.apply(job, backend.devices())
        remarks = (*remarks, *preset_notices)
    advice, plan = _admit_and_plan(job, who, backend, replaces)
    return msgspec.structs.replace(plan, notices=(*remarks, *advice, *plan.notices))


def _admit_and_plan(
    job: MPIJob, who: Identity, backend: Backend, replaces: str, *, fresh: bool = False
) -> tuple[tuple[Finding, ...], Plan]:
    from mpijob import admission

    found = backend.preflight(job, who, fresh=fresh)
    facts = _without(found.facts, replaces)
    try:
        # Permissions, quota and capacity.
        advice = admission.admit(job, who, facts)
        # The plan uses the same facts, so that both judge one state.
        return advice, backend.plan(job, found._replace(facts=facts))
    except MpiJobError:
        if not facts.recalled:
            raise
    # The facts came from a cache: a job is refused only by fresh ones.
    return _admit_and_plan(job, who, backend, replaces, fresh=True)


def submit(job: MPIJob, backend: Backend, *, max_workers: int) -> JobRef:
    """Start or queue the job; on an error nothing is left of it."""
    backend.prewarm()
    return submit_prepared(job, backend, max_workers=max_workers)


def submit_prepared(
    job: MPIJob, backend: Backend, *, max_workers: int, replaces: JobState | None = None
) -> JobRef:
    """Check, admit, plan and start; a replaced job is cancelled only after all of this succeeded."""
    name = replaces.ref.name if replaces is not None else ""
    try:
        who = backend.whoami()
        plan = prepare(job, who, backend, max_workers=max_workers, replaces=name)
    except MpiJobError as error:
        # Refused requests are audited, too; imported here because most jobs are not refused.
        from mpijob.client.audit import recorder

        recorder.record_event(backend, Verb.CREATE, JobRef(job.namespace, job.name), job, error)
        raise
    _log_warnings(plan)
    if replaces is not None and not replaces.phase.final:
        backend.cancel(replaces.ref, grace_seconds=0)
    return backend.submit(plan, who)


def plan(job: MPIJob, backend: Backend, *, max_workers: int, server: bool = False) -> Plan:
    """Return the dry run; with `server`, the API server checks the documents, too."""
    result = prepare(job, backend.whoami(), backend, max_workers=max_workers)
    if not server:
        return result
    notices = backend.server_dry_run(result) or (_no_server(backend.name),)
    return msgspec.structs.replace(result, notices=(*result.notices, *notices))


def _log_warnings(plan: Plan) -> None:
    """Log the warnings of a submitted job; notices are in the plan."""
    if worrying := [one for one in plan.notices if one.severity is Severity.WARNING]:
        # Imported here because commands must start quickly.
        import logging

        for one in worrying:
            logging.getLogger("mpijob").warning("warning: %s", one)


def _no_server(place: str) -> Finding:
    message = f"{place} has no server-side dry run: the plan is the complete dry run"
    return Finding(code="SERVER_DRY_RUN", message=message, severity=Severity.NOTICE)


def refuse_unsound(job: MPIJob, *, max_workers: int) -> tuple[Finding, ...]:
    """Return the warnings and notices of the checks; raise InvalidJob with all errors."""
    from mpijob import checks

    findings = checks.run(job, max_workers=max_workers)
    if errors := tuple(finding for finding in findings if finding.severity is Severity.ERROR):
        raise InvalidJob.of(errors)
    return findings


def _without(facts: Facts, name: str) -> Facts:
    return msgspec.structs.replace(facts, taken_names=facts.taken_names - {name}) if name else facts
