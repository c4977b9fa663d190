"""The `curves` command: training metrics of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import attempt_option, command, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.cli.render.job_table import tell_if_deleted
from mpijob.observation.metrics.training import sparkline

if TYPE_CHECKING:
    from mpijob.observation.metrics.event_files import EventScalars
    from mpijob.observation.metrics.training import Curves


@command("curves", outputs=(Format.TABLE, Format.JSON, Format.YAML, Format.CSV))
@name_argument
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Only metrics of this rank.")
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="REGEX",
    help="Read metrics from named groups: 'step (?P<step>\\d+) loss (?P<loss>\\S+)'.",
)
@click.option(
    "--points", default=720, type=click.IntRange(1, 100_000), help="Maximum number of points per metric."
)
@click.option("--event-files", is_flag=True, help="Read the TensorBoard event files that the job wrote.")
@attempt_option
@pass_app
def curves(
    app: App,
    name: str,
    rank: int | None,
    patterns: tuple[str, ...],
    points: int,
    event_files: bool,
    attempt: int | None,
) -> None:
    """Show training metrics, progress and estimated end."""
    if event_files:
        if rank is not None or patterns:
            raise click.UsageError("--event-files reads files, not lines: leave --rank and --pattern out")
        _show_scalars(app, name, app.client.scalars(name, points=points, attempt=attempt))
        return
    found = app.client.curves(name, patterns, rank=rank, points=points, attempt=attempt)
    tell_if_deleted(app, app.client.state(name))
    if app.out.structured:
        app.out.value(found)
        return
    if app.out.format is Format.CSV:
        rows = (
            (one.name, *row)
            for one in found.series
            for row in zip(one.times, one.steps, one.values, strict=True)
        )
        app.out.csv(("metric", "time", "step", "value"), rows)
        return
    if not found.series and found.progress is None:
        app.out.note(f"{name} reported no metrics; call mpijob.report(step=…, loss=…) in the program")
        return
    app.out.lines(lines(found))


def _show_scalars(app: App, name: str, found: EventScalars) -> None:
    """Print the scalars of event files; what could not be read goes to stderr."""
    if app.out.structured:
        app.out.value(found)
        return
    for note in found.notes:
        app.out.note(note)
    if app.out.format is Format.CSV:
        rows = (
            (one.run, one.tag, *row)
            for one in found.series
            for row in zip(one.times, one.steps, one.values, strict=True)
        )
        app.out.csv(("run", "metric", "time", "step", "value"), rows)
        return
    if not found.series:
        app.out.note(f"{name} has no TensorBoard scalars: {found.files} event files")
        return
    header = ("RUN", "METRIC", "LAST", "LEAST", "MOST", "READ", "CURVE")
    app.out.lines(
        text.table(
            header,
            [
                (one.run, one.tag, *map(_number, (one.last, one.least, one.most)), str(one.count),
                 sparkline(one.values))
                for one in found.series
            ],
        )
    )  # fmt: skip


def lines(found: Curves) -> list[str]:
    """Return progress and curves as a terminal shows them."""
    told = progress(found)
    rows = [
        (
            one.name,
            _number(one.last),
            _number(one.least),
            _number(one.most),
            str(one.count),
            sparkline(one.values),
        )
        for one in found.series
    ]
    return [*([told] if told else []),
            *(text.table(("METRIC", "LAST", "LEAST", "MOST", "TOLD", "CURVE"), rows) if rows else [])]  # fmt: skip


def progress(found: Curves) -> str:
    """Return how far a training is, in one line."""
    parts = []
    for name, at, of in (("epoch", found.epoch, found.epochs), ("step", found.step, found.steps)):
        if at is not None:
            parts.append(f"{name} {at:g}" + (f" of {of:g}" if of else ""))
    if found.progress is not None:
        parts.append(f"{found.progress:.0%} done")
    if found.eta is not None:
        parts.append(f"ends in about {text.duration(found.eta)}")
    return ", ".join(parts)


def _number(value: float | None) -> str:
    return "nan" if value is None else f"{value:.6g}"
