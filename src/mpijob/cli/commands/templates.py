"""The `template` commands: personal and shared job templates."""

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
from mpijob.client.submit.templates import Template
from mpijob.model import MPIJob

_template_argument = click.argument("template", metavar="TEMPLATE")


@click.group("template", context_settings=SETTINGS)
def template() -> None:
    """Save, share and use job templates."""


@command("save", outputs=(), cls=TakesCommand)
@_template_argument
@given_options
@job_flags
@click.option("--from", "origin", metavar="JOB", shell_complete=job_names, help="Existing job.")
@click.option("--overwrite", is_flag=True, help="Replace an existing template.")
@click.option("--share", is_flag=True, help="Share the template with the namespace.")
@pass_app
def save(app: App, template: str, origin: str | None, overwrite: bool, share: bool, **given: Any) -> None:
    """Save a job as a template, from a file, flags or an existing job."""
    if origin and given["files"]:
        raise click.UsageError("specify --from or --file, not both")
    asked = JobArguments.of(app, given)
    job = _changed(app.client.spec(origin), asked.changes) if origin else asked.job()
    made = app.client.templates.save(template, job, overwrite=overwrite, share=share)
    app.out.line(f"{made.name} shared with namespace {made.namespace}" if share else f"{made.name} saved")


@command("list", outputs=(Format.TABLE, Format.JSON, Format.YAML, Format.NAME))
@pass_app
def list_templates(app: App) -> None:
    """List your templates, shared templates and built-in templates."""
    found = app.client.templates.shelf()
    if app.out.structured:
        app.out.value(found.items)
    elif app.out.format is Format.NAME:
        app.out.lines(one.name for one in found.items)
    else:
        rows = [_row(one, app.now()) for one in found.items]
        app.out.lines(text.table(("NAME", "FROM", "SAVED BY", "SAVED", "DESCRIPTION"), rows))
    if found.notice:
        app.out.note(found.notice)


def _row(one: Template, now: float) -> tuple[str, ...]:
    origin = f"{one.origin.value} ({one.namespace})" if one.namespace else one.origin.value
    when = text.ago(one.changed, now) if one.changed else "-"
    return one.name, origin, one.owner or "-", when, one.description or "-"


@command("show", outputs=(Format.YAML, Format.JSON))
@_template_argument
@click.option(
    "--shared", is_flag=True, help="Print the shared template, even if you have one of the same name."
)
@pass_app
def show(app: App, template: str, shared: bool) -> None:
    """Print a template as a job file."""
    from mpijob.client.submit import drafts

    job = app.client.templates.show(template, shared=shared)
    app.out.text(drafts.shown(job, "json" if app.out.format is Format.JSON else "yaml"))


@command("use", cls=TakesCommand)
@_template_argument
@given_options
@job_flags
@pass_app
def use(app: App, template: str, **given: Any) -> None:
    """Create a job from a template; change it with NAME and flags."""
    if given["files"]:
        raise click.UsageError("--file cannot be combined with a template")
    job = _changed(app.client.templates.show(template), JobArguments.of(app, given).changes)
    show_state(app, app.client.submit(job).state())


@command("delete", outputs=())
@_template_argument
@click.option("--shared", is_flag=True, help="Delete the shared template.")
@pass_app
def delete(app: App, template: str, shared: bool) -> None:
    """Delete one of your templates, or a shared one."""
    app.client.templates.delete(template, shared=shared)
    app.out.line(f"{template} deleted")


@command("share", outputs=())
@_template_argument
@click.option("--overwrite", is_flag=True, help="Replace an existing shared template.")
@pass_app
def share(app: App, template: str, overwrite: bool) -> None:
    """Share one of your templates with the namespace."""
    made = app.client.templates.share(template, overwrite=overwrite)
    app.out.line(f"{template} shared with namespace {made.namespace}")


for _command in (save, list_templates, show, use, delete, share):
    template.add_command(_command)


def _changed(job: MPIJob, changes: tuple[Change, ...]) -> MPIJob:
    return from_tree(overlay(msgspec.to_builtins(job), changes))
