"""data: folders of buckets, fetched and stored by hand or by the pods of a job."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, command

_source = click.argument("source", metavar="CONNECTION/FOLDER")
_directory = click.argument("directory")


@click.group("data", context_settings=SETTINGS)
def data() -> None:
    """Download and upload S3 folders through data connections."""


@command("fetch", outputs=(), namespace=False)
@_source
@_directory
@pass_app
def fetch(app: App, source: str, directory: str) -> None:
    """Fetch a folder of a bucket into a directory."""
    from mpijob.client.integrations import s3_sync

    with app.out.progress(f"fetching {source} …"):
        told = s3_sync.fetch(app.settings(), source, directory)
    app.out.line(told)


@command("store", outputs=(), namespace=False)
@_source
@_directory
@pass_app
def store(app: App, source: str, directory: str) -> None:
    """Store the files of a directory in a folder of a bucket."""
    from mpijob.client.integrations import s3_sync

    with app.out.progress(f"storing {directory} …"):
        told = s3_sync.store(app.settings(), source, directory)
    app.out.line(told)


@command("keep", outputs=(), namespace=False)
@_source
@_directory
@click.option("--every", default=30.0, help="Seconds between two looks.")
@pass_app
def keep(app: App, source: str, directory: str, every: float) -> None:
    """Store what changes in a directory until told to end, then once more; on a cluster it runs beside each worker."""
    from mpijob.client.integrations import s3_sync

    for told in s3_sync.keep(app.settings(), source, directory, every):
        app.out.line(told)


for _command in (fetch, store, keep):
    data.add_command(_command)
