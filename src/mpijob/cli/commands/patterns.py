"""The `patterns` command: common causes of failed jobs in a period, for administrators."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import Duration, command
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.diagnosis.patterns import Pattern


@command("patterns", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@click.option(
    "--since", type=Duration(), default="1h", metavar="TIME", help="How far back to look: 1h, 24h, 168h."
)
@click.option(
    "--least", type=click.IntRange(min=1), default=2, metavar="N", help="Only causes of at least N jobs."
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")
@pass_app
def patterns(app: App, since: float, least: int, all_namespaces: bool) -> None:
    """Show the most frequent causes of failed jobs."""
    with app.out.progress("reading the finished jobs …"):
        fleet = app.client.patterns(since, until=app.now(), least=least, all_namespaces=all_namespaces)
    if app.out.structured:
        app.out.value(fleet)
        return
    app.out.line(fleet.message)
    for pattern in fleet.patterns:
        app.out.lines(("", *_lines(pattern, app.now())))
    if fleet.single:
        app.out.note(f"{fleet.single} more failed with a unique cause: --least 1 shows them")


def _lines(pattern: Pattern, now: float) -> list[str]:
    more = f" and {pattern.count - len(pattern.jobs)} more" if pattern.count > len(pattern.jobs) else ""
    lines = [pattern.message, f"  last:  {text.ago(pattern.last, now)}: {text.one_line(pattern.example)}"]
    lines += [f"  fix:   {text.one_line(pattern.hint)}"] if pattern.hint else []
    return [*lines, f"  jobs:  {', '.join(pattern.jobs)}{more}"]
