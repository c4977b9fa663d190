"""The `schedule` commands: create, list, pause and delete schedules."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click
import msgspec

from mpijob import codec
from mpijob.cli.arguments.flags import job_flags
from mpijob.cli.arguments.job_args import JobArguments, TakesCommand, given_options
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, Duration, command
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.errors import InvalidJob

if TYPE_CHECKING:
    from mpijob.model.spec.schedule import Recurrence

_LISTED = (Format.TABLE, Format.JSON, Format.YAML, Format.NAME)


@click.group("schedule", context_settings=SETTINGS)
def schedule() -> None:
    """Run jobs on a cron schedule."""


@command("create", cls=TakesCommand)
@given_options
@job_flags
@click.option(
    "--when", required=True, metavar="CRON", help="Cron expression, such as '30 2 * * *' or @daily."
)
@click.option(
    "--time-zone",
    default="",
    metavar="ZONE",
    help="Time zone, such as Europe/Berlin; default: that of the machine or cluster.",
)
@click.option(
    "--overlap",
    type=click.Choice(["Allow", "Forbid", "Replace"], case_sensitive=False),
    default="Forbid",
    help="What to do if the previous job is still running; Forbid skips the new one.",
)
@click.option(
    "--start-within",
    type=Duration(),
    metavar="TIME",
    help="Maximum delay for running a missed start (startingDeadlineSeconds).",
)
@pass_app
def create(
    app: App, when: str, time_zone: str, overlap: str, start_within: float | None, **given: Any
) -> None:
    """Create a schedule for a job."""
    from mpijob.model.spec.schedule import Overlap, Schedule

    asked = JobArguments.of(app, given)
    job = asked.job()
    wanted = Schedule(
        name=job.name,
        when=when,
        job=job,
        namespace=job.namespace,
        time_zone=time_zone,
        overlap=Overlap(overlap.capitalize()),
        start_within_seconds=start_within,
    )
    with asked.located():
        made = app.client.schedules.create(wanted)
    _show(app, made, f"schedule {made.schedule.name}: next {_moment(made.next, made)}")


@command("list", outputs=_LISTED)
@click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")
@pass_app
def list_schedules(app: App, all_namespaces: bool) -> None:
    """List schedules with their last run, its result and the next run."""
    found = app.client.schedules.list(all_namespaces=all_namespaces)
    if app.out.structured:
        app.out.value([_safe(one) for one in found])
    elif app.out.format is Format.NAME:
        app.out.lines(one.schedule.name for one in found)
    else:
        header = ("NAME", "WHEN", "ZONE", "OVERLAP", "LAST", "NEXT", "TOLD")
        app.out.lines(text.table(header, map(_row, found)))


def _row(one: Recurrence) -> tuple[str, ...]:
    wanted = one.schedule
    coming = "paused" if wanted.paused else _moment(one.next, one)
    last = _moment(one.last, one)
    return (wanted.name, wanted.when, wanted.time_zone, wanted.overlap.value, last, coming, one.told or "-")


def _moment(when: float | None, one: Recurrence) -> str:
    if when is None:
        return "-"
    return datetime.fromtimestamp(when, ZoneInfo(one.schedule.time_zone or "Etc/UTC")).strftime(
        "%Y-%m-%d %H:%M %Z"
    )


@command("show", outputs=(Format.YAML, Format.JSON))
@click.argument("name")
@pass_app
def show(app: App, name: str) -> None:
    """Print a schedule with its job."""
    app.out.format = app.out.format if app.out.structured else Format.YAML
    app.out.value(_safe(app.client.schedules.get(name)))


@command("delete", outputs=())
@click.argument("name")
@pass_app
def delete(app: App, name: str) -> None:
    """Delete a schedule; keep the jobs that it created."""
    app.client.schedules.delete(name)
    app.out.line(f"schedule {name} deleted")


@command("pause")
@click.argument("name")
@pass_app
def pause(app: App, name: str) -> None:
    """Pause a schedule."""
    _show(app, app.client.schedules.pause(name), f"schedule {name} paused")


@command("resume")
@click.argument("name")
@pass_app
def resume(app: App, name: str) -> None:
    """Resume a paused schedule; missed runs are skipped."""
    made = app.client.schedules.resume(name)
    _show(app, made, f"schedule {name}: next {_moment(made.next, made)}")


@command("fire", outputs=())
@click.argument("name", required=False)
@click.option("--document", envvar="MPIJOB_SCHEDULE", hidden=True, default="")
@click.option("--as", "run", envvar="MPIJOB_SCHEDULED_NAME", hidden=True, default="")
@click.option("--since", envvar="MPIJOB_SCHEDULED_SINCE", hidden=True, default=0.0)
@pass_app
def fire(app: App, name: str | None, document: str, run: str, since: float) -> None:
    """Start a schedule's job now, subject to its overlap policy."""

    from mpijob.model.spec.schedule import Schedule

    schedules = app.client.schedules
    if name:
        wanted = schedules.get(name).schedule
    elif document:
        try:
            wanted = codec.decode(document, Schedule)
        except msgspec.DecodeError as error:
            raise InvalidJob(
                f"--document is not a schedule: {error}",
                hint="name one instead: mpijob schedule list shows them",
            ) from error
    else:
        raise click.UsageError("name a schedule; mpijob schedule list shows them")
    app.out.line(schedules.fire(wanted) if name else schedules.fire(wanted, run, since=since))


@command("serve", outputs=(), namespace=False)
@pass_app
def serve(app: App) -> None:
    """Run this machine's scheduler in the foreground, for a service manager or @reboot."""
    from mpijob.client.services import cron

    app.out.note(cron.serve(app.settings()))


@command("rights", outputs=())
@pass_app
def rights(app: App) -> None:
    """Print the RBAC manifests that schedules on a cluster need."""
    import yaml

    from mpijob.formats.kubernetes import cronjob

    documents = cronjob.rights(app.settings().namespace)
    app.out.text(yaml.safe_dump_all(documents, sort_keys=False))


def _safe(one: Recurrence) -> Recurrence:
    """Return the schedule with secrets masked."""
    from mpijob.observation.redaction.masking import masked_job

    wanted = msgspec.structs.replace(one.schedule, job=masked_job(one.schedule.job))
    return msgspec.structs.replace(one, schedule=wanted)


def _show(app: App, one: Recurrence, line: str) -> None:
    if app.out.structured:
        app.out.value(_safe(one))
    else:
        app.out.line(one.schedule.name if app.out.format is Format.NAME else line)


for _command in (create, list_schedules, show, delete, pause, resume, fire, serve, rights):
    schedule.add_command(_command)
