"""The `profile` command: time in MPI, traffic between ranks, and waits."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import mpi_profile_text


@command("profile", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@name_argument
@click.option("--step", type=int, metavar="N", help="Step of a script; default: the last.")
@click.option("--calls", type=click.IntRange(min=0), default=10, show_default=True, metavar="N",
              help="Number of MPI functions to show.")  # fmt: skip
@click.option("--pairs", type=click.IntRange(min=0), default=10, show_default=True, metavar="N",
              help="Number of rank pairs to show.")  # fmt: skip
@pass_app
def profile(app: App, name: str, step: int | None, calls: int, pairs: int) -> None:
    """Show MPI time, messages and bytes of the ranks of a job.

    The job must run with --profile-mpi. Works while the job runs and afterwards.
    """
    found = app.client.profile(name, step=step)
    if app.out.structured:
        app.out.value(found)
        return
    if not found.ranks:
        app.out.note("no rank has started MPI yet" if not found.lacks else found.lacks[0])
        return
    app.out.lines(mpi_profile_text.lines(found, calls=calls, pairs=pairs))
