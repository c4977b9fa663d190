"""The commands that run services: recorder, exporter, notifier, broker, controller, operator, webhook."""

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


@command("recorder", outputs=())
@click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")
@click.option(
    "--metrics-port", type=click.IntRange(1, 65535), metavar="PORT", help="Port of the Prometheus metrics."
)
@click.option(
    "--metrics-address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address of the metrics; 0.0.0.0 requires a certificate.",
)
@click.option("--metrics-certificate", metavar="FILE", help="TLS certificate of the metrics.")
@click.option("--metrics-key", metavar="FILE", help="TLS key of the metrics.")
@click.option(
    "--health-port", type=click.IntRange(1, 65535), metavar="PORT", help="Port of the health probes."
)
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
    """Run the recorder: keep the history of cluster jobs.

    Writes states, events, exit codes and all logs to the directory of the setting `history`. `mpijob logs`,
    `describe`, `events` and `list --deleted` read it after a job is deleted. Runs until SIGTERM; a restart
    continues where the last one stopped.

    Metrics contain job names of all tenants. On an address other than loopback they require TLS, and a
    token with RBAC permission to `get` /metrics.
    """
    from mpijob.client.integrations import prometheus_exporter
    from mpijob.client.services import memory_trim, run_recorder, shutdown

    tls = (metrics_certificate, metrics_key) if metrics_certificate and metrics_key else None
    if tls is not None and not all(map(os.path.exists, tls)):
        app.out.note(f"{tls[0]} or {tls[1]} does not exist: metrics are served on loopback only")
        metrics_address, tls = "127.0.0.1", None
    scrape = (
        None if metrics_port is None else prometheus_exporter.ScrapeAccess(metrics_address, metrics_port, tls)
    )
    stop = shutdown.until_ended()
    memory_trim.keep_small(stop)
    namespace = "" if all_namespaces else app.client.namespace
    where = "all namespaces" if all_namespaces else f"namespace {namespace}"
    run_recorder.record(
        app.client.settings,
        namespace,
        stop,
        lambda path: app.out.note(f"recording {where} into {path}"),
        metrics=scrape,
        health_port=health_port,
    )


@command("exporter", outputs=())
@click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=9464, show_default=True, help="Port of the metrics."
)
@click.option(
    "--address", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on."
)
@pass_app
def exporter(app: App, all_namespaces: bool, port: int, address: str) -> None:
    """Run the Prometheus exporter: jobs, failures, queues, usage.

    Read-only; runs until SIGTERM. On a cluster, prefer `mpijob recorder --metrics-port`, which adds no load
    on the API server.
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
@click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")
@pass_app
def notifier(app: App, all_namespaces: bool) -> None:
    """Run the notifier: signed callbacks when jobs change, with retries.

    Runs until SIGTERM; a restart continues where the last one stopped.
    """
    from mpijob.client.integrations import webhooks
    from mpijob.client.services import shutdown

    stop = shutdown.until_ended()
    webhooks.run(app.client.twin(), stop, all_namespaces=all_namespaces)


@command("broker", outputs=())
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Address to listen on; addresses other than loopback require TLS.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8444, show_default=True, help="Port to listen on."
)
@click.option("--certificate", default="", metavar="FILE", help="TLS certificate with its chain.")
@click.option("--key", default="", metavar="FILE", help="TLS key.")
@pass_app
def broker(app: App, address: str, port: int, certificate: str, key: str) -> None:
    """Run the fit broker: would a user's job start now?

    Reads queues and nodes with its own permissions, and answers users who may create jobs in the namespace.
    Users configure it with the setting `broker`. Runs until SIGTERM.
    """
    from mpijob.client.services import run_broker, shutdown

    if bool(certificate) != bool(key):
        raise click.UsageError("--certificate and --key must be used together")
    stop = shutdown.until_ended()
    tls = (certificate, key) if certificate else None
    run_broker.serve(
        app.client.settings, (address, port), tls, stop, lambda where: app.out.note(f"listening on {where}")
    )


@command("controller", outputs=())
@click.option("-A", "--all-namespaces", is_flag=True, help="Include all namespaces.")
@click.option("--lease-namespace", default="", help="Namespace of the leader election Lease.")
@click.option("--health-port", type=click.IntRange(0, 65535), help="Port of /healthz, /readyz and /metrics.")
@pass_app
def controller(app: App, all_namespaces: bool, lease_namespace: str, health_port: int | None) -> None:
    """Run the controller: retries, timeouts, limits, cleanup.

    Publishes transitions and findings as Events and annotations, retries failed jobs, enforces limits of
    namespaces and deletes orphaned objects. Runs until SIGTERM. Safe to restart; with several instances,
    only the leader acts.
    """
    from mpijob.client.services import memory_trim, run_controller, shutdown

    stop = shutdown.until_ended()
    memory_trim.keep_small(stop)
    namespace = "" if all_namespaces else app.client.namespace
    where = "all namespaces" if all_namespaces else f"namespace {namespace}"
    run_controller.control(
        app.client.settings,
        namespace,
        stop,
        lease_namespace=lease_namespace,
        health_port=health_port,
        ready=lambda: app.out.note(f"controller of the jobs of {where}"),
    )


@command("operator", outputs=())
@click.option("--deploy", default="", help="Directory of the manifests.")
@click.option("--health-port", type=click.IntRange(0, 65535), help="Port of /healthz, /readyz and /metrics.")
@pass_app
def operator(app: App, deploy: str, health_port: int | None) -> None:
    """Run the operator that reconciles MPIJobPlatform.

    Installs, upgrades and removes engines, roles, queues and the services of mpijob; leaves resources of
    other owners alone. Runs until SIGTERM. Safe to restart; with several instances, only the leader acts.
    """
    if find_spec("starlette") is None:
        raise Unsupported(
            "the operator requires the extra cluster", hint="run: pip install 'mpijob[cluster]'"
        )
    words = [f"--namespace={app.namespace}"] if app.namespace else []
    words += [f"--deploy={deploy}"] if deploy else []
    words += [f"--health-port={health_port}"] if health_port is not None else []
    # Interfaces do not import each other: this process is replaced by the operator's.
    os.execv(sys.executable, [sys.executable, "-m", "mpijob.cluster", "operator", *words])


@command("webhook", outputs=())
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8443, show_default=True, help="Port to listen on."
)
@click.option(
    "--address",
    default="",
    metavar="HOST",
    help="Host name of the certificate, if the webhook has no Service.",
)
@click.option("--service-name", default="mpijob-webhook", show_default=True, help="Name of its Service.")
@click.option(
    "--renew-every",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Interval of certificate checks in seconds.",
)
@click.option(
    "--service-namespace",
    default="mpijob-system",
    show_default=True,
    help="Namespace of its Service and keys.",
)
@click.option(
    "--client-ca",
    default="",
    metavar="FILE",
    help="Require client certificates of this CA.",
)
@click.option(
    "--client-name",
    default="",
    metavar="NAME",
    help="Required name in the client certificate; empty accepts any.",
)
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
    """Run the admission webhook: limits, quota, ownership, secrets.

    The webhook configurations are in deploy/base/admission. Creates and renews its own certificates. Runs
    until SIGTERM.
    """
    if find_spec("cryptography") is None:
        raise Unsupported("the webhook requires the extra cluster", hint="run: pip install 'mpijob[cluster]'")
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
    # Interfaces do not import each other: this process is replaced by the webhook's.
    with tempfile.TemporaryFile() as handed:
        handed.write(msgspec.json.encode(options))
        handed.seek(0)
        os.set_inheritable(handed.fileno(), True)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(
            sys.executable, [sys.executable, "-m", "mpijob.cluster.webhook.server", str(handed.fileno())]
        )
