"""logs, events: what was said and what happened."""

from __future__ import annotations

from typing import Any

import click

from mpijob.cli import shown
from mpijob.cli.context import App, pass_app
from mpijob.cli.follow import Look, show_lines, waiting, waits
from mpijob.cli.listed import tell_if_deleted
from mpijob.cli.options import Moment, Numbers, command, name_argument
from mpijob.cli.output import Format
from mpijob.model import Phase, Role
from mpijob.observation.masking import secret_values


@command("logs", outputs=(Format.TABLE, Format.JSON))
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--rank", "ranks", type=Numbers(), default=(), metavar="0-3,7", help="Only these ranks.")
@click.option("--worker", "workers", type=Numbers(), default=(), metavar="0-3,7", help="Only these workers.")
@click.option(
    "--role", "roles", multiple=True, type=click.Choice([role.value for role in Role]), help="Only this role."
)
@click.option("--since", type=Moment(), metavar="TIME", help="Not before: 1h (ago), 24h, or a date and time.")
@click.option("--until", type=Moment(), metavar="TIME", help="Not after: as for --since.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--grep", "regex", default="", metavar="REGEX", help="Only lines that match.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only this attempt.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option("--no-prefix", is_flag=True, help="Do not say which rank a line comes from.")
@click.option("--raw", is_flag=True, help="Print the bytes as they are, control bytes and secrets included.")
@pass_app
def logs(
    app: App,
    name: str,
    timestamps: bool,
    no_prefix: bool,
    raw: bool,
    roles: tuple[str, ...],
    **query: Any,
) -> None:
    """Print the merged output of launcher, workers and ranks."""
    secrets = secret_values(app.client.spec(name))
    tell_if_deleted(app, app.client.remembered)
    look = Look(raw=raw, prefix=not no_prefix, timestamps=timestamps, secrets=secrets)
    if query["follow"]:
        _tell_what_it_waits_for(app, name)
    show_lines(app, app.client.logs(name, roles=tuple(Role(role) for role in roles), **query), look)


def _tell_what_it_waits_for(app: App, name: str) -> None:
    """Say on stderr why a job that has not begun says nothing yet; one with earlier attempts has said something."""
    first = app.client.state(name)
    told = ""
    for state in waiting(app, first) if first.attempt == 1 else (first,):
        if state.phase is Phase.SUSPENDED or not waits(state):
            return
        line = shown.phase_line(state)
        if line != told and (state is first or state.waiting_for):
            app.out.phase_note(line, state.phase)
            told = line


@command("events", outputs=(Format.TABLE, Format.JSON))
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@pass_app
def events(app: App, name: str, follow: bool) -> None:
    """Print what happened to a job, in order."""
    for number, event in enumerate(app.client.events(name, follow=follow)):
        if not number:
            tell_if_deleted(app, app.client.remembered)
        if app.out.format is Format.JSON:
            app.out.json_line(event)
        else:
            app.out.line(shown.event_line(event, app.now()))
