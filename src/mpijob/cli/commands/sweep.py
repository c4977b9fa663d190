"""array: one job for each combination of values."""

from __future__ import annotations

from typing import Any

import click

from mpijob.cli import values
from mpijob.cli.context import App, pass_app
from mpijob.cli.flags import job_flags
from mpijob.cli.jobspec import Given, TakesCommand, given_options
from mpijob.cli.listed import show_states
from mpijob.cli.options import command

_TEXTS = ("env.", "labels.", "cost.", "launch.settings.")  # 0.10 stays 0.10 there


@command("array", cls=TakesCommand)
@given_options
@job_flags
@click.option(
    "--values", "sweep", multiple=True, metavar="PATH=A,B,…", help="A field and its values: env.LR=0.1,0.01."
)
@pass_app
def array(app: App, sweep: tuple[str, ...], **given: Any) -> None:
    """Create one job for each combination of values."""
    if not sweep:
        raise click.UsageError("give --values at least once, as in --values workers=2,4")
    job = Given.of(app, given).job()
    with app.out.progress(f"submitting the jobs of {job.name} …"):
        made = app.client.array(job, dict(_values(text) for text in sweep))
    states = [one.state() for one in made]
    if app.out.structured:
        app.out.value(states)
    else:
        show_states(app, states, namespaced=False)


def _values(text: str) -> tuple[str, list[Any]]:
    path, equals, listed = text.partition("=")
    if not equals or not path or not listed:
        raise click.BadParameter(f"{text!r} is not of the form PATH=A,B", param_hint="--values")
    read = str if path.startswith(_TEXTS) else values.anything
    return path, [read(value) for value in listed.split(",")]
