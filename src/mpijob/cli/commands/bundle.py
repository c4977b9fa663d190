"""The `bundle` command: everything known of a job in one archive, masked, for support."""

from __future__ import annotations

from pathlib import Path

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.model.spec.quantity import as_bytes

_MOST_MIB = 32


@command("bundle", outputs=(Format.TABLE, Format.JSON, Format.YAML))
@name_argument
@click.option("-O", "--file", metavar="FILE", help="Output file; default: NAME-bundle.tar.gz.")
@click.option("--stacks", is_flag=True, help="Include stack traces of a running job.")
@click.option(
    "--limit", type=click.IntRange(1, 4096), default=_MOST_MIB, metavar="MIB", help="Maximum size before compression."
)  # fmt: skip
@pass_app
def bundle(app: App, name: str, file: str | None, stacks: bool, limit: int) -> None:
    """Create a support bundle of a job, with secrets masked.

    The bundle contains spec, plan, states, events, usage, findings, logs, versions and the output of
    doctor.
    """
    with app.out.progress(f"collecting the data of {name} …"):
        made = app.client.bundle(name, Path(file) if file else None, stacks=stacks, most_bytes=limit << 20)
    if app.out.structured:
        app.out.value(made)
        return
    rows = ((entry.name, as_bytes(entry.size), entry.about) for entry in made.files)
    for line in text.table(("FILE", "SIZE", "WHAT"), rows):
        app.out.note(line)
    app.out.note(f"secrets are masked; check it before you send it ({as_bytes(made.size)})")
    app.out.line(made.path)
