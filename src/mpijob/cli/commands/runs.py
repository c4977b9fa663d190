"""The `runs` command: every run of a name, with its attempts."""

from __future__ import annotations

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import job_table, text
from mpijob.errors import NotFound
from mpijob.model import JobState

_HEADER = ("RUN", "ATTEMPT", "PHASE", "WORKERS", "AGE", "DURATION", "EXIT", "REASON", "UID", "DELETED")


@command("runs")
@name_argument
@pass_app
def runs(app: App, name: str) -> None:
    """List all runs of a job name and their attempts, newest first.

    Each submission under a name, and each `mpijob retry`, is a run: NAME@1 is the first, NAME the newest.
    Commands that read jobs accept NAME@1, and --attempt N for one attempt of a run.
    """
    found = app.client.runs(name)
    rows = [(run, attempt) for run in found for attempt in reversed(_attempts(app, run))]
    if app.out.structured:
        app.out.value([attempt for _, attempt in rows])
    elif app.out.format is Format.NAME:
        app.out.lines(job_table.run_name(run) for run in found)
    else:
        app.out.lines(text.table(_HEADER, (_row(app, run, attempt) for run, attempt in rows)))


def _attempts(app: App, run: JobState) -> tuple[JobState, ...]:
    """Return the attempts of a run, each with the number of the run."""
    from msgspec.structs import replace

    if run.attempt == 1:
        return (run,)
    try:
        return tuple(replace(one, run=run.run) for one in app.client.attempts(run.ref))
    except NotFound:  # it went meanwhile
        return (run,)


def _row(app: App, run: JobState, attempt: JobState) -> tuple[str, ...]:
    from mpijob.accounting.build import exit_code

    code = exit_code(attempt)
    return (
        job_table.run_name(run),
        str(attempt.attempt),
        attempt.phase.value,
        attempt.aggregate,
        text.age(attempt.created, app.now()),
        text.duration(attempt.duration_seconds(app.now())),
        "-" if code is None else str(code),
        attempt.reason or "-",
        run.ref.uid,
        "-" if run.deleted is None else text.ago(run.deleted, app.now()),
    )
