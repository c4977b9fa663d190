"""The `record` commands: back up, restore and erase the job history."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, command, confirm


@click.group("record", context_settings=SETTINGS)
def record() -> None:
    """Back up, restore or erase the job history."""


@command("backup", outputs=(), namespace=False)
@click.argument("file", metavar="FILE", type=click.Path())
@pass_app
def backup(app: App, file: str) -> None:
    """Back up the history to one file, also while it is in use."""
    with app.out.progress("backing up the history …"):
        jobs = app.client.backup_record(file)
    app.out.line(f"{file} holds {jobs} jobs")


@command("restore", outputs=(), namespace=False)
@click.argument("file", metavar="FILE", type=click.Path(exists=True))
@pass_app
def restore(app: App, file: str) -> None:
    """Restore a backup into an empty history."""
    with app.out.progress("restoring the history …"):
        jobs = app.client.restore_record(file)
    app.out.line(f"{jobs} jobs restored")


@command("erase", outputs=(), namespace=False)
@click.option("--user", required=True, metavar="NAME", help="User whose jobs to erase.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_app
def erase(app: App, user: str, yes: bool) -> None:
    """Erase records, logs and accounting of a user's deleted jobs; the audit log notes it."""
    confirm(app, f"Erase all records of deleted jobs of {user}?", yes)
    gone = app.client.erase_user(user)
    app.out.line(f"{len(gone)} jobs of {user} erased")


for one in (backup, restore, erase):
    record.add_command(one)
