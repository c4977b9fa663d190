"""The `data` commands: copy folders of S3 buckets."""

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
    """Download a bucket folder into a directory."""
    from mpijob.client.integrations import s3_sync

    with app.out.progress(f"fetching {source} …"):
        told = s3_sync.fetch(app.settings(), source, directory)
    app.out.line(told)


@command("store", outputs=(), namespace=False)
@_source
@_directory
@pass_app
def store(app: App, source: str, directory: str) -> None:
    """Upload a directory into a bucket folder."""
    from mpijob.client.integrations import s3_sync

    with app.out.progress(f"storing {directory} …"):
        told = s3_sync.store(app.settings(), source, directory)
    app.out.line(told)


@command("keep", outputs=(), namespace=False)
@_source
@_directory
@click.option("--every", default=30.0, help="Interval in seconds.")
@pass_app
def keep(app: App, source: str, directory: str, every: float) -> None:
    """Upload changes of a directory until SIGTERM; runs as a sidecar of each worker on a cluster."""
    from mpijob.client.integrations import s3_sync

    for told in s3_sync.keep(app.settings(), source, directory, every):
        app.out.line(told)


for _command in (fetch, store, keep):
    data.add_command(_command)
