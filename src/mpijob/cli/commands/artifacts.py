"""The `artifacts` commands: list and download the output files of a job."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, attempt_option, command, name_argument
from mpijob.cli.output import Format
from mpijob.cli.render import job_table, text
from mpijob.model.spec.quantity import as_bytes


@click.group("artifacts", context_settings=SETTINGS)
def artifacts() -> None:
    """List and download output files of a job."""


@command("list", outputs=(Format.TABLE, Format.JSON, Format.YAML, Format.NAME))
@name_argument
@attempt_option
@pass_app
def artifacts_list(app: App, name: str, attempt: int | None) -> None:
    """List output files of a job."""
    files = app.client.artifacts(name, attempt=attempt)
    if app.out.structured:
        app.out.value(files)
    elif app.out.format is Format.NAME:
        app.out.lines(text.one_line(file.path) for file in files)
    else:
        rows = ((file.path, as_bytes(file.size), str(file.attempt or "-")) for file in files)
        app.out.lines(text.table(("PATH", "SIZE", "ATTEMPT"), rows))


@command("fetch", outputs=())
@name_argument
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--to", "directory", default=".", metavar="DIRECTORY",
              help="Target directory; default: the current directory.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Overwrite existing files that differ.")
@attempt_option
@pass_app
def artifacts_fetch(
    app: App, name: str, paths: tuple[str, ...], directory: str, overwrite: bool, attempt: int | None
) -> None:
    """Download output files of a job; without PATH, all files.

    Files keep their relative paths. Existing files that differ are not overwritten without --overwrite.
    """
    with app.out.progress(f"fetching from {name} …"):
        fetched = app.client.fetch(name, directory, paths, overwrite=overwrite, attempt=attempt)
    app.out.lines(text.one_line(str(path)) for path in fetched)
    app.out.note(job_table.fetched_phrase(len(fetched), directory))


@command("store", outputs=())
@name_argument
@pass_app
def artifacts_store(app: App, name: str) -> None:
    """Upload the files of a job's S3 volumes again."""
    from mpijob.cli import exit_codes

    with app.out.progress(f"uploading the files of {name} …"):
        told = app.client.store(name)
    app.out.lines(one for one in told if isinstance(one, str))
    for one in told:
        if not isinstance(one, str):
            app.out.note(one.message)
    exit_codes.end(exit_codes.FAILED if any(not isinstance(one, str) for one in told) else exit_codes.OK)


artifacts.add_command(artifacts_store)
artifacts.add_command(artifacts_list)
artifacts.add_command(artifacts_fetch)
