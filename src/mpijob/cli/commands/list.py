"""The commands list and get: jobs and their phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import Moment, attempt_option, command, name_argument
from mpijob.cli.render.job_table import show_page, show_states, tell_if_deleted
from mpijob.model import Phase


def filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose among jobs."""
    for option in reversed(
        (
            click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces."),
            click.option(
                "-l",
                "--selector",
                default="",
                metavar="LABELS",
                help="Label selector, such as team=cv,tier!=test.",
            ),
            click.option(
                "--phase", "phases", multiple=True, type=phase_choice, help="Only jobs in this phase."
            ),
            click.option("--owner", default="", help="Only jobs of this user."),
            click.option("--queue", default="", help="Only jobs of this queue."),
            click.option(
                "--type",
                "kinds",
                multiple=True,
                metavar="KIND",
                help="Only jobs of this kind: MPIJob, TrainJob, PyTorchJob …",
            ),
            click.option(
                "--since",
                type=Moment(),
                metavar="WHEN",
                help="Only jobs submitted after this time: 24h, 7d, or a date and time.",
            ),
            click.option(
                "--until", type=Moment(), metavar="WHEN", help="Only jobs submitted before this time."
            ),
        )
    ):
        function = option(function)
    return function


phase_choice = click.Choice([phase.value for phase in Phase], case_sensitive=False)


@command("list")
@filters
@click.option("--text", default="", help="Only jobs whose name contains this text; ignores case.")
@click.option("--limit", default=100, type=click.IntRange(1, 10_000), help="Maximum number of jobs.")
@click.option("--runs", is_flag=True, help="Include earlier runs of each name.")
@click.option("--deleted", is_flag=True, help="List deleted jobs from the history instead.")
@click.option("--after", default="", metavar="CURSOR", help="Continue after this cursor.")
@click.option("--all-contexts", is_flag=True, help="Include all contexts: this machine, clusters, Slurm.")
@pass_app
def list_jobs(app: App, all_contexts: bool, **chosen: Any) -> None:
    """List jobs, newest first."""
    if not all_contexts:
        show_page(app, **chosen)
        return
    if chosen.pop("deleted") or chosen.pop("after"):
        raise click.UsageError("--all-contexts cannot be combined with --deleted or --after")
    from mpijob.cli.render.contexts_table import show

    show(app, **chosen)


@command("get")
@name_argument
@click.argument("more", nargs=-1, metavar="[NAME]...")
@attempt_option
@pass_app
def get(app: App, name: str, more: tuple[str, ...], attempt: int | None) -> None:
    """Show the status of jobs."""
    states = [app.client.state(one, attempt=attempt) for one in (name, *more)]
    for state in states:
        tell_if_deleted(app, state)
    if app.out.structured:
        app.out.value(states if more else states[0])
    else:
        show_states(app, states, namespaced=False, named=True)
        app.out.findings(finding for state in states if not state.phase.final for finding in state.findings)
