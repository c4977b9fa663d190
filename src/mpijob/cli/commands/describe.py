"""The `describe` command: everything known of one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import attempt_option, command, name_argument
from mpijob.cli.output import Format, as_yaml, finding_lines
from mpijob.cli.render import job_table, parts_tree
from mpijob.errors import Finding, MpiJobError, NotAllowed
from mpijob.model import JobState, MPIJob, Phase
from mpijob.observation.redaction.masking import masked_job
from mpijob.settings import CLUSTER, is_slurm

if TYPE_CHECKING:
    from mpijob.observation.redaction.encryption import Protection

_LAST_EVENTS = 20
# Only recent lines are read for metrics: the whole log may have a gigabyte.
_LAST_SECONDS = 120.0


@command("describe", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@name_argument
@attempt_option
@pass_app
def describe(app: App, name: str, attempt: int | None) -> None:
    """Show the details of a job: launcher, workers, ranks and findings."""
    state = app.client.state(name, attempt=attempt)
    spec, findings = masked_job(app.client.spec(state.ref)), state.findings
    events = tuple(app.client.events(state.ref, attempt=attempt))
    warnings = _warnings(app, state)
    findings = tuple(finding for finding in findings if finding not in warnings)
    if app.out.structured:
        told = {"state": state, "spec": spec, "findings": findings, "warnings": warnings, "events": events}
        app.out.value(told | {"encryption": _encryption(app, spec)})
        return
    now = app.now()
    app.out.lines(job_table.state_lines(state, now, runs=_runs(app, state)))
    _section(app, "Launcher, workers and ranks", parts_tree.lines(state))
    _section(app, "Steps", job_table.step_lines(state, now) if state.steps else [])
    _section(app, "Spec", as_yaml(msgspec.to_builtins(spec)).splitlines())
    _section(app, "Events", [job_table.event_line(event, now) for event in events[-_LAST_EVENTS:]])
    _section(
        app, "Encryption", [f"{one.what}: {one.encrypted} ({one.why})" for one in _encryption(app, spec)]
    )
    _section(app, "Training", _training(app, state))
    _section(app, "MPI", _profile(app, state) if spec.profile_mpi else [])
    _section(app, "Warnings", finding_lines(warnings))
    more = [f"more: {app.words(state.ref, 'why')}"] if findings else []
    _section(app, "Findings", [*finding_lines(findings), *more])


def _runs(app: App, state: JobState) -> tuple[JobState, ...]:
    """Return the runs of the name; none if they cannot be read."""
    try:
        return app.client.runs(state.ref.name, namespace=state.ref.namespace)
    except MpiJobError:
        return ()


def _encryption(app: App, spec: MPIJob) -> tuple[Protection, ...]:
    """Return which data of the job is encrypted, in transit and at rest."""
    from mpijob.observation.redaction.encryption import protections

    engine = app.client.settings.engine
    return protections(spec, cluster=engine == CLUSTER, slurm=is_slurm(engine))


def _warnings(app: App, state: JobState) -> tuple[Finding, ...]:
    return app.client.warnings(state.ref) if state.phase is Phase.RUNNING else ()


def _profile(app: App, state: JobState) -> list[str]:
    """Return a summary of the MPI profile."""
    from mpijob.cli.render import mpi_profile_text

    try:
        found = app.client.profile(state.ref)
    except NotAllowed:
        return []
    more = f"more: {app.words(state.ref, 'profile')}"
    return [*mpi_profile_text.summary(found), more] if found.ranks else [*found.lacks]


def _training(app: App, state: JobState) -> list[str]:
    """Return progress and recent training metrics; `curves` reads all of them."""
    from mpijob.cli.commands.curves import lines

    if not state.started:
        return []
    since = (state.finished or app.now()) - _LAST_SECONDS
    try:
        told = lines(app.client.curves(state.ref, points=80, since=since))
    except NotAllowed:
        # The findings say that the log may not be read; the rest is shown.
        return []
    return [*told, *(f"{name}: {link}" for name, link in app.client.links(state.ref).items())]


def _section(app: App, title: str, lines: list[str]) -> None:
    if lines:
        app.out.lines(("", f"{title}:", *(f"  {line}" for line in lines)))
