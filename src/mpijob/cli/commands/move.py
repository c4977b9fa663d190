"""The `move` command: a job as another context would run it, with every difference."""

from __future__ import annotations

from typing import Any

import click

from mpijob.cli import exit_codes
from mpijob.cli.arguments.flags import job_flags
from mpijob.cli.arguments.job_args import TakesCommand, command_changes
from mpijob.cli.arguments.overlay import changes_of, overlay
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, name_argument
from mpijob.cli.output import Format


@command("move", outputs=(Format.TABLE, Format.JSON, Format.YAML), cls=TakesCommand)
@name_argument
@click.option(
    "--to", "target", required=True, metavar="CONTEXT", help="Target context, in the same form as --context."
)
@click.option(
    "--submit", is_flag=True, help="Submit the job to the target context if it can run there unchanged."
)
@job_flags
@pass_app
def move(app: App, name: str, target: str, submit: bool, **given: Any) -> None:
    """Plan a job on another engine and show every difference.

    Flags and the command after `--` change the job first. Nothing starts without --submit, and the original
    job stays unchanged. NAME@CONTEXT selects a job of another context.
    """
    import msgspec

    from mpijob.cli.arguments.job_args import from_tree
    from mpijob.cli.render.contexts_table import show_move
    from mpijob.client.contexts import Contexts, split_name
    from mpijob.settings import LOCAL

    contexts = Contexts(app.settings())
    changes = [*changes_of(given), *command_changes(given)]
    fields: dict[str, Any] = {}
    here = split_name(name)[1]
    source = (
        here if here is not None else app.place if app.place is not None else app.settings().engine or LOCAL
    )
    if changes:
        with contexts.client(source) as client:
            tree = overlay(msgspec.to_builtins(client.spec(split_name(name)[0])), changes)
        whole = from_tree(tree)
        fields = {change.path.partition(".")[0]: None for change in changes}
        fields = {field: getattr(whole, field) for field in fields}
    planned = contexts.move(split_name(name)[0], target, source, **fields)
    show_move(app, planned)
    if submit:
        job = contexts.submit(planned)
        app.out.note(f"submitted: {app.program} logs -f {job.name} --context {target}")
    elif planned.plan is None:
        exit_codes.end(exit_codes.FAILED)
