"""recorder, exporter: the processes that write a cluster's jobs down while they run, and answer Prometheus."""

from __future__ import annotations

import os

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command


@command("recorder", outputs=())
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of every namespace.")
@click.option(
    "--metrics-port", type=click.IntRange(1, 65535), metavar="PORT", help="Answer Prometheus at this port."
)
@click.option(
    "--metrics-address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="For other machines: 0.0.0.0, with a certificate.",
)
@click.option("--metrics-certificate", metavar="FILE", help="TLS for Prometheus on other machines.")
@click.option("--metrics-key", metavar="FILE", help="The certificate's key.")
@click.option("--health-port", type=click.IntRange(1, 65535), metavar="PORT", help="Answer probes there.")
@pass_app
def recorder(
    app: App,
    all_namespaces: bool,
    metrics_port: int | None,
    metrics_address: str,
    metrics_certificate: str | None,
    metrics_key: str | None,
    health_port: int | None,
) -> None:
    """Record the jobs of a cluster, so that they are known when they are gone.

    It goes on until it is ended (SIGTERM, Ctrl-C); started again, it goes on where it was. States, events,
    exit codes and all logs go into the directory of the setting `history`, which `mpijob logs`, `describe`,
    `events` and `list --deleted` read when a job is gone. Metrics name jobs of all tenants: on another address than
    loopback they need TLS, and a token whose holder may `get` the path /metrics by the cluster's RBAC.
    """
    from mpijob.client.integrations import prometheus_exporter
    from mpijob.client.services import malloc, run_recorder, shutdown

    tls = (metrics_certificate, metrics_key) if metrics_certificate and metrics_key else None
    if tls is not None and not all(map(os.path.exists, tls)):
        app.out.note(f"{tls[0]} or {tls[1]} is not there: metrics are served on this machine alone")
        metrics_address, tls = "127.0.0.1", None
    door = (
        None if metrics_port is None else prometheus_exporter.ScrapeAccess(metrics_address, metrics_port, tls)
    )
    stop = shutdown.until_ended()
    malloc.keep_small(stop)
    namespace = "" if all_namespaces else app.client.namespace
    where = "all namespaces" if all_namespaces else f"namespace {namespace}"
    run_recorder.record(
        app.client.settings,
        namespace,
        stop,
        lambda path: app.out.note(f"recording {where} into {path}"),
        metrics=door,
        health_port=health_port,
    )


@command("exporter", outputs=())
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of every namespace.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=9464, show_default=True, help="Where Prometheus asks."
)
@click.option(
    "--address", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Which of this machine's."
)
@pass_app
def exporter(app: App, all_namespaces: bool, port: int, address: str) -> None:
    """Answer Prometheus: jobs, stages, failures, queues, what workers use.

    It goes on until it is ended (SIGTERM, Ctrl-C) and only reads. On a cluster `mpijob recorder --metrics-port`
    answers from the record instead, without asking the cluster again.
    """
    from mpijob.client.integrations import metric_sources, prometheus_exporter
    from mpijob.client.services import shutdown

    stop = shutdown.until_ended()
    client = app.client.twin()
    source = metric_sources.OfClient(client, all_namespaces=all_namespaces)
    made = prometheus_exporter.exporter(source, app.client.settings, client.rates)
    with prometheus_exporter.serve(made, prometheus_exporter.ScrapeAccess(address, port)):
        app.out.note(f"metrics at http://{address}:{port}/metrics")
        stop.wait()


@command("notifier", outputs=())
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of every namespace.")
@pass_app
def notifier(app: App, all_namespaces: bool) -> None:
    """Call the webhooks of the settings when jobs change: signed, again until they answer.

    It goes on until it is ended (SIGTERM, Ctrl-C); started again, it goes on where it was.
    """
    from mpijob.client.integrations import webhooks
    from mpijob.client.services import shutdown

    stop = shutdown.until_ended()
    webhooks.run(app.client.twin(), stop, all_namespaces=all_namespaces)
