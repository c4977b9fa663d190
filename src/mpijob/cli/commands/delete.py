"""The `delete` command: jobs by name, by selector, or all after confirmation."""

from __future__ import annotations

from functools import partial

import click

from mpijob.cli import bulk, exit_codes
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, names_argument
from mpijob.cli.output import Format


@command("delete", outputs=(Format.TABLE, Format.NAME))
@names_argument
@bulk.choices
@bulk.grace_option
@click.option("--forget", is_flag=True, help="Also erase the record, including that of jobs deleted earlier.")
@pass_app
def delete(
    app: App,
    names: tuple[str, ...],
    selector: str,
    phases: tuple[str, ...],
    everything: bool,
    yes: bool,
    grace: float | None,
    forget: bool,
) -> None:
    """Delete jobs and all their runs; their records stay for a while."""
    bulk.refuse_both(names, bool(selector or phases or everything))

    def one(name: str) -> int:
        with app.out.progress(f"deleting {name} …"):
            app.client.delete(name, grace_period=grace, forget=forget)
        told(name)
        return exit_codes.OK

    def told(name: str) -> None:
        app.out.line(
            name if app.out.format is Format.NAME else f"{name} {'forgotten' if forget else 'deleted'}"
        )

    if names:
        bulk.by_name(app, names, one)
    else:
        act = partial(app.client.delete_all, forget=forget)
        bulk.chosen(app, "delete", act, told, selector=selector, phases=phases, yes=yes, grace=grace)
