"""The `array` command: one job for each combination of values."""

from __future__ import annotations

import re
from typing import Any

import click

from mpijob.cli.arguments import flag_values
from mpijob.cli.arguments.flags import job_flags
from mpijob.cli.arguments.job_args import JobArguments, TakesCommand, given_options
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command
from mpijob.cli.render.job_table import show_states
from mpijob.client.submit.array import ARRAY_LABEL

_RANGE = re.compile(r"\d{1,9}-\d{1,9}(?::\d{1,9})?(?:%\d{1,9})?")
_SHOWN = 20
# Values of these fields are strings: 0.10 stays 0.10.
_TEXTS = ("env.", "labels.", "cost.", "launch.settings.")


@command("array", cls=TakesCommand)
@given_options
@job_flags
@click.option(
    "--values",
    "sweep",
    multiple=True,
    metavar="PATH=A,B,…",
    help="Field and its values, such as env.LR=0.1,0.01.",
)
@pass_app
def array(app: App, sweep: tuple[str, ...], **given: Any) -> None:
    """Create one job for each combination of values.

    The values of a Slurm, PBS or LSF SCRIPT come from the array option in its header.
    """
    asked = JobArguments.of(app, given, array=True)
    values: dict[str, list[Any]] = dict(_values(text) for text in sweep)
    if asked.script is not None and not values:
        values = {path: list(listed) for path, listed in asked.script.values.items()}
    if not values:
        raise click.UsageError("specify --values at least once, for example --values workers=2,4")
    job = asked.job()
    with app.out.progress(f"submitting the jobs of {job.name} …"):
        made = app.client.array(job, values)
    states = [one.state() for one in made]
    if app.out.structured:
        app.out.value(states)
    else:
        show_states(app, states, namespaced=False)
        app.out.note(f"wait for all of them: mpijob wait -l {ARRAY_LABEL}={job.name}")


def _values(text: str) -> tuple[str, list[Any]]:
    path, equals, listed = text.partition("=")
    if not equals or not path or not listed:
        raise click.BadParameter(f"{text!r} is not of the form PATH=A,B", param_hint="--values")
    _refuse_ranges(path, listed)
    read = _meant if path.startswith(_TEXTS) else flag_values.anything
    return path, [read(value) for value in listed.split(",")]


def _meant(value: str) -> str:
    """Return a value without its quotes, which mark a text that looks like a range."""
    return value[1:-1] if value[:1] in ("'", '"') and _RANGE.fullmatch(value[1:-1]) else value


def _refuse_ranges(path: str, listed: str) -> None:
    """Refuse ranges in Slurm's syntax, `0-3,8-10:2%2`: each would be one value, and one job."""
    parts = listed.partition("%")[0].split(",")
    if not any(_RANGE.fullmatch(part) for part in parts):
        return
    from mpijob.formats.convert.header import units

    found = units.tasks(",".join(parts)) or ("0", "1", "2")
    every = ",".join(found) if len(found) <= _SHOWN else f"{found[0]},{found[1]},…,{found[-1]}"
    quoted = ",".join(f"'{part}'" if _RANGE.fullmatch(part) else part for part in parts)
    hint = f'write {path}={every} for one job each, or "{path}={quoted}" where the text itself is meant'
    raise click.BadParameter(f"{listed!r} is a range; list the values instead: {hint}", param_hint="--values")
