"""template: jobs kept to be used again, alone or by a team."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from mpijob.cli.arguments.flags import job_flags
from mpijob.cli.arguments.job_args import JobArguments, TakesCommand, from_tree, given_options
from mpijob.cli.arguments.overlay import Change, overlay
from mpijob.cli.commands.lifecycle import show_state
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, command, job_names
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.model import MPIJob

_template_argument = click.argument("template", metavar="TEMPLATE")


@click.group("template", context_settings=SETTINGS)
def template() -> None:
    """Save, share and use job templates."""


@command("save", outputs=(), cls=TakesCommand)
@_template_argument
@given_options
@job_flags
@click.option("--from", "origin", metavar="JOB", shell_complete=job_names, help="A job that exists already.")
@click.option("--overwrite", is_flag=True, help="Replace a template of that name.")
@pass_app
def save(app: App, template: str, origin: str | None, overwrite: bool, **given: Any) -> None:
    """Save a job as a template: from a file, flags, or a job that exists."""
    if origin and given["files"]:
        raise click.UsageError("give --from or --file, not both")
    asked = JobArguments.of(app, given)
    job = _changed(app.client.spec(origin), asked.changes) if origin else asked.job()
    made = app.client.templates.save(template, job, overwrite=overwrite)
    app.out.line(f"{made.name} saved")


@command("list", outputs=(Format.TABLE, Format.JSON, Format.YAML, Format.NAME), namespace=False)
@pass_app
def list_templates(app: App) -> None:
    """List the templates: own, shared and the library's."""
    found = app.client.templates.list()
    if app.out.structured:
        app.out.value(found)
    elif app.out.format is Format.NAME:
        app.out.lines(one.name for one in found)
    else:
        rows = ((one.name, one.origin.value, one.description or "-") for one in found)
        app.out.lines(text.table(("NAME", "FROM", "DESCRIPTION"), rows))


@command("show", outputs=(Format.YAML, Format.JSON), namespace=False)
@_template_argument
@pass_app
def show(app: App, template: str) -> None:
    """Print a template as a job file."""
    from mpijob.client.submit import drafts

    job = app.client.templates.show(template)
    app.out.text(drafts.shown(job, "json" if app.out.format is Format.JSON else "yaml"))


@command("use", cls=TakesCommand)
@_template_argument
@given_options
@job_flags
@pass_app
def use(app: App, template: str, **given: Any) -> None:
    """Create a job from a template; NAME and flags are the changes."""
    if given["files"]:
        raise click.UsageError("a template is the file: leave --file out")
    job = _changed(app.client.templates.show(template), JobArguments.of(app, given).changes)
    show_state(app, app.client.submit(job).state())


@command("delete", outputs=(), namespace=False)
@_template_argument
@pass_app
def delete(app: App, template: str) -> None:
    """Delete a template."""
    app.client.templates.delete(template)
    app.out.line(f"{template} deleted")


@command("share", outputs=(), namespace=False)
@_template_argument
@click.option("--overwrite", is_flag=True, help="Replace a shared template of that name.")
@pass_app
def share(app: App, template: str, overwrite: bool) -> None:
    """Share an own template with the team."""
    app.client.templates.share(template, overwrite=overwrite)
    app.out.line(f"{template} shared")


for _command in (save, list_templates, show, use, delete, share):
    template.add_command(_command)


def _changed(job: MPIJob, changes: tuple[Change, ...]) -> MPIJob:
    return from_tree(overlay(msgspec.to_builtins(job), changes))
