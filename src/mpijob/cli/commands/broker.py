"""broker: the service that tells users whether a job would start, from what they may not read themselves."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command


@command("broker", outputs=())
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Where it listens; beyond this machine only with TLS.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8444, show_default=True, help="Where it listens."
)
@click.option("--certificate", default="", metavar="FILE", help="Its TLS certificate, with the chain.")
@click.option("--key", default="", metavar="FILE", help="The key of that certificate.")
@pass_app
def broker(app: App, address: str, port: int, certificate: str, key: str) -> None:
    """Tell users of a cluster whether their jobs would start.

    It reads queues and machines with rights of its own and answers for who may create jobs in a namespace. Users
    name it in the setting `broker`; where it is not, they see what they may read. It goes on until it is ended.
    """
    from mpijob.client.services import run_broker, shutdown

    if bool(certificate) != bool(key):
        raise click.UsageError("--certificate and --key belong together")
    stop = shutdown.until_ended()
    tls = (certificate, key) if certificate else None
    run_broker.serve(
        app.client.settings, (address, port), tls, stop, lambda where: app.out.note(f"answering at {where}")
    )
