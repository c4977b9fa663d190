"""webhook: the service that a cluster's API server asks about each job."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec

import click
import msgspec

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command
from mpijob.errors import Unsupported


@command("webhook", outputs=())
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8443, show_default=True, help="Where it listens."
)
@click.option(
    "--address", default="", metavar="HOST", help="Name of its certificate, when it is no service there."
)
@click.option(
    "--service-name", default="mpijob-webhook", show_default=True, help="What its service is called."
)
@click.option(
    "--renew-every",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Seconds between looks at its keys.",
)
@click.option(
    "--service-namespace", default="mpijob-system", show_default=True, help="Where its keys are kept."
)
@click.option(
    "--client-ca",
    default="",
    metavar="FILE",
    help="Answer only clients with a certificate of this authority, as an API server can show one.",
)
@click.option("--client-name", default="", metavar="NAME", help="The name in that certificate; any if empty.")
@pass_app
def webhook(
    app: App,
    port: int,
    address: str,
    service_name: str,
    renew_every: float,
    service_namespace: str,
    client_ca: str,
    client_name: str,
) -> None:
    """Judge jobs when they reach a cluster: limits, quota, owners, secrets.

    It goes on until it is ended (SIGTERM, Ctrl-C). The configurations that make an API server ask it are
    in deploy/base/admission; it makes and renews its certificates itself.
    """
    if find_spec("cryptography") is None:
        raise Unsupported(
            "the webhook needs what makes certificates", hint="run: pip install 'mpijob[cluster]'"
        )
    settings = app.settings()
    options = {
        "port": port,
        "address": address,
        "name": service_name,
        "namespace": service_namespace,
        "renew_seconds": renew_every,
        "client_ca": client_ca,
        "client_name": client_name,
        "kubeconfig": settings.kubeconfig,
        "context": settings.context,
    }
    with tempfile.TemporaryFile() as handed:  # faces do not know each other: this process becomes the server
        handed.write(msgspec.json.encode(options))
        handed.seek(0)
        os.set_inheritable(handed.fileno(), True)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(
            sys.executable, [sys.executable, "-m", "mpijob.cluster.webhook.server", str(handed.fileno())]
        )
