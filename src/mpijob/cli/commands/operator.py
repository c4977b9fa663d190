"""operator: the process that keeps the platform of a cluster."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command
from mpijob.errors import Unsupported


@command("operator", outputs=())
@click.option("--deploy", default="", help="The folder of our own manifests.")
@click.option("--health-port", type=click.IntRange(0, 65535), help="Answer /healthz, /readyz and /metrics.")
@pass_app
def operator(app: App, deploy: str, health_port: int | None) -> None:
    """Keep the platform of a cluster as its MPIJobPlatform says.

    Engines, roles, queues and our own services are installed, upgraded and taken away; what others keep is left
    alone. It goes on until it is ended; killed and started again, it comes to the same end. Several may run: one
    of them acts.
    """
    if find_spec("kopf") is None:
        raise Unsupported("the operator needs its framework", hint="run: pip install 'mpijob[cluster]'")
    words = [f"--namespace={app.namespace}"] if app.namespace else []
    words += [f"--deploy={deploy}"] if deploy else []
    words += [f"--health-port={health_port}"] if health_port is not None else []
    # Faces do not know each other: this process becomes the other one.
    os.execv(sys.executable, [sys.executable, "-m", "mpijob.cluster", "operator", *words])
