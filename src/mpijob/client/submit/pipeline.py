"""The whole story on one page: check, admit, plan, submit.

The stages do not know each other; here they are introduced. The dry run is the first half of
submitting, never a second path. What to do with a job that exists already (retry, clone, replace)
is told in `resubmit`, waiting in `wait`.
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

    `replaces` names a job that makes way for this one, so that its name does not count as taken.
    """
    from mpijob import checks  # a list of jobs does without: start-up is a feature

    remarks = refuse_unsound(job, max_workers=max_workers)  # is it well formed?
    job = checks.normal(job)
    if job.presets:
        from mpijob.formats.jobfile import presets

        job, settled = presets.settle(job, backend.devices())  # written out for this place
        remarks = (*remarks, *settled)
    advice, plan = _judged(job, who, backend, replaces)
    return msgspec.structs.replace(plan, notices=(*remarks, *advice, *plan.notices))


def _judged(
    job: MPIJob, who: Identity, backend: Backend, replaces: str, *, fresh: bool = False
) -> tuple[tuple[Finding, ...], Plan]:
    from mpijob import admission

    found = backend.preflight(job, who, fresh=fresh)
    facts = _without(found.facts, replaces)
    try:
        advice = admission.admit(job, who, facts)  # may it, and is there room?
        return advice, backend.plan(job, found._replace(facts=facts))  # what exactly will run?
    except MpiJobError:
        if not facts.recalled:
            raise
    return _judged(job, who, backend, replaces, fresh=True)  # refuse only for what is true now


def submit(job: MPIJob, backend: Backend, *, max_workers: int) -> JobRef:
    """Start the job, or queue it, wholly or not at all."""
    backend.prewarm()
    return carry_through(job, backend, max_workers=max_workers)


def carry_through(
    job: MPIJob, backend: Backend, *, max_workers: int, replaces: JobState | None = None
) -> JobRef:
    """Check, admit, plan and start; a job that this one replaces makes way only when all that went well."""
    name = replaces.ref.name if replaces is not None else ""
    try:
        who = backend.whoami()
        plan = prepare(job, who, backend, max_workers=max_workers, replaces=name)
    except MpiJobError as error:
        from mpijob.client.audit import recorder  # what is refused is written down too

        recorder.tell(backend, Verb.CREATE, JobRef(job.namespace, job.name), job, error)
        raise
    _say_warnings(plan)
    if replaces is not None and not replaces.phase.final:
        backend.cancel(replaces.ref, grace_seconds=0)
    return backend.submit(plan, who)


def plan(job: MPIJob, backend: Backend, *, max_workers: int, server: bool = False) -> Plan:
    """Return the dry run of this job for the user who asks; the place's server judges it too if it is asked to."""
    made = prepare(job, backend.whoami(), backend, max_workers=max_workers)
    if not server:
        return made
    said = backend.server_dry_run(made) or (_no_server(backend.name),)
    return msgspec.structs.replace(made, notices=(*made.notices, *said))


def _say_warnings(plan: Plan) -> None:
    """Say what a submitted job should not be silent about; notices stand in the plan."""
    if worrying := [one for one in plan.notices if one.severity is Severity.WARNING]:
        import logging  # seldom needed: start-up is a feature

        for one in worrying:
            logging.getLogger("mpijob").warning("warning: %s", one)


def _no_server(place: str) -> Finding:
    message = f"{place} has no server-side dry run: the plan is the complete dry run"
    return Finding(code="SERVER_DRY_RUN", message=message, severity=Severity.NOTICE)


def refuse_unsound(job: MPIJob, *, max_workers: int) -> tuple[Finding, ...]:
    """Return what there is to remark on a job; raise InvalidJob with all that contradicts itself in it."""
    from mpijob import checks

    findings = checks.run(job, max_workers=max_workers)
    if errors := tuple(finding for finding in findings if finding.severity is Severity.ERROR):
        raise InvalidJob.of(errors)
    return findings


def _without(facts: Facts, name: str) -> Facts:
    return msgspec.structs.replace(facts, taken_names=facts.taken_names - {name}) if name else facts
