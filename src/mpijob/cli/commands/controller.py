"""controller: the process that tends a cluster's jobs when nobody waits for them."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command


@command("controller", outputs=())
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of every namespace.")
@click.option(
    "--lease-namespace", default="", help="Where the Lease is by which one of several controllers acts."
)
@click.option("--health-port", type=click.IntRange(0, 65535), help="Answer /healthz, /readyz and /metrics.")
@pass_app
def controller(app: App, all_namespaces: bool, lease_namespace: str, health_port: int | None) -> None:
    """Tend the jobs of a cluster when nobody waits for them.

    Transitions and findings are told on each job (Events, annotations), failed jobs are tried again as often as
    they say, the limits of namespaces are kept, what nobody owns is cleared away. It goes on until it is ended
    (SIGTERM, Ctrl-C); killed and started again, it comes to the same end. Several may run: one of them acts.
    """
    from mpijob.client.services import malloc, run_controller, shutdown

    stop = shutdown.until_ended()
    malloc.keep_small(stop)
    namespace = "" if all_namespaces else app.client.namespace
    where = "all namespaces" if all_namespaces else f"namespace {namespace}"
    run_controller.control(
        app.client.settings,
        namespace,
        stop,
        lease_namespace=lease_namespace,
        health_port=health_port,
        ready=lambda: app.out.note(f"tending jobs of {where}"),
    )
