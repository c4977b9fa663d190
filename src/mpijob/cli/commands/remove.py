"""delete: jobs by name, by selector, or all of them after a question."""

from __future__ import annotations

import click

from mpijob.cli.commands.show import phase_choice
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import Duration, command, confirm, names_argument
from mpijob.cli.output import Format
from mpijob.errors import Conflict


@command("delete", outputs=(Format.TABLE, Format.NAME))
@names_argument
@click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Jobs with these labels: team=cv,tier!=test."
)
@click.option("--phase", "phases", multiple=True, type=phase_choice, help="Jobs in this phase.")
@click.option("--all", "everything", is_flag=True, help="All jobs of the namespace.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--grace", type=Duration(), metavar="TIME", help="Time to end by itself, where not the job's own."
)
@pass_app
def delete(
    app: App,
    names: tuple[str, ...],
    selector: str,
    phases: tuple[str, ...],
    everything: bool,
    yes: bool,
    grace: float | None,
) -> None:
    """End jobs if needed and remove all that is known of them."""
    chosen = bool(selector or phases or everything)
    if chosen == bool(names):
        raise click.UsageError("name the jobs, or choose them with --selector, --phase or --all")
    if chosen:
        _chosen(app, selector, phases, yes, grace)
        return
    for name in names:
        with app.out.progress(f"deleting {name} …"):
            app.client.delete(name, grace_period=grace)
        _deleted(app, name)


def _chosen(app: App, selector: str, phases: tuple[str, ...], yes: bool, grace: float | None) -> None:
    total = app.client.list(selector=selector, phases=phases, limit=1).total
    if not total:
        app.out.note("no jobs found")
        return
    confirm(app, f"Delete {total} {'job' if total == 1 else 'jobs'}?", yes)
    with app.out.progress(f"deleting {total} jobs …"):
        done = app.client.delete_all(selector=selector, phases=phases, every=True, grace_period=grace)
    for one in done:
        _deleted(app, one.ref.name) if one.ok else app.out.note(f"error: {one.ref.name}: {one.error}")
    if refused := sum(not one.ok for one in done):
        raise Conflict(f"{refused} of {len(done)} jobs could not be deleted")


def _deleted(app: App, name: str) -> None:
    app.out.line(name if app.out.format is Format.NAME else f"{name} deleted")
