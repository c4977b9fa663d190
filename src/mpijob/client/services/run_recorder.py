"""Run the recorder of a cluster in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING

from mpijob.errors import InvalidJob, Unsupported
from mpijob.settings import CLUSTER, RateSetting, Settings, history_directory

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.client.integrations.prometheus_exporter import Rates, ScrapeAccess
    from mpijob.history.archive import Archive

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def record(
    settings: Settings,
    namespace: str,
    stop: threading.Event,
    ready: Callable[[str], None] = lambda _: None,
    *,
    metrics: ScrapeAccess | None = None,
    health_port: int | None = None,
) -> None:
    """Record the jobs of a namespace ("": all) until `stop`; `ready` is called with the directory.

    `metrics` is the address for Prometheus: from other machines only with TLS, and only for users who may
    read `/metrics` by the cluster's RBAC. `health_port` is for the kubelet's probes.
    """
    if settings.engine != CLUSTER:
        raise Unsupported(
            "the recorder requires a cluster; jobs of this machine do not need it",
            hint="select a cluster with --context NAME, or set MPIJOB_ENGINE=kubernetes",
        )
    from mpijob.backends.kubernetes.auth import kubeconfig
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.client.api_errors import translated
    from mpijob.backends.kubernetes.logs.archive import store_of
    from mpijob.backends.kubernetes.metrics import prometheus_query
    from mpijob.backends.kubernetes.recorder.recorder import Recorder
    from mpijob.history.archive import Archive
    from mpijob.history.retention import RetentionSettings

    access = kubeconfig.load(path=settings.kubeconfig, context=settings.context)
    directory = history_directory(settings, access.context or "cluster")
    archive = Archive(directory, shared=True, database=settings.history_database, objects=store_of(settings))
    api = Api(access)
    rates = partial(_rates, api, settings)
    if settings.traces:
        _send_traces(archive, settings, stop)
    if settings.mlflow:
        _mirror(archive, settings, stop)
    with ExitStack() as held:
        held.callback(archive.close)
        if metrics is not None:
            held.enter_context(_metrics(api, archive, settings, rates, metrics))
        if health_port is not None:
            held.enter_context(_health(health_port))
        with translated("record jobs"):
            prometheus = prometheus_query.of_settings(settings)
            recorder = Recorder(
                api, archive, RetentionSettings.from_settings(settings), namespace, settings.rules, prometheus
            )
            recorder.run(stop, lambda: ready(directory))


def _health(port: int) -> AbstractContextManager[object]:
    from mpijob.serving.service import HealthServer

    return HealthServer(port, alive=lambda: True, ready=lambda: True, metrics={})


def _rates(api: Api, settings: Settings) -> Mapping[str, RateSetting]:
    from mpijob.backends.kubernetes.admin.namespace_limits import Governor
    from mpijob.backends.kubernetes.client.api_errors import translated

    with translated("read the cost rates"):
        return {**settings.rates, **Governor(api).rates()}


def _metrics(
    api: Api, archive: Archive, settings: Settings, rates: Rates, scrape: ScrapeAccess
) -> AbstractContextManager[object]:
    from mpijob.backends.kubernetes.auth.token_access import Tokens
    from mpijob.backends.kubernetes.logs.archive import of_archive
    from mpijob.client.integrations import metric_sources, prometheus_exporter

    # On loopback only processes of this pod or machine can connect.
    if scrape.address not in _LOOPBACK:
        if scrape.tls is None:
            raise InvalidJob(
                f"metrics of all tenants require TLS on an address other than loopback: {scrape.address}",
                hint="set --metrics-certificate and --metrics-key, or omit --metrics-address",
            )
        scrape = scrape._replace(allowed=partial(Tokens(api).reads, "/metrics"))
    source = metric_sources.OfRecord(archive, of_archive(archive), settings.metric_patterns)
    return prometheus_exporter.serve(prometheus_exporter.exporter(source, settings, rates), scrape)


def _send_traces(archive: Archive, settings: Settings, stop: threading.Event) -> None:
    from mpijob.backends.kubernetes.logs.archive import of_archive
    from mpijob.client.integrations import metric_sources, otlp

    otlp.Sender(metric_sources.OfRecord(archive, of_archive(archive)), settings.traces, stop).start()


def _mirror(archive: Archive, settings: Settings, stop: threading.Event) -> None:
    from mpijob.backends.kubernetes.logs.archive import of_archive
    from mpijob.client.integrations import metric_sources, mlflow, tracking

    server = mlflow.Server(settings.mlflow, settings.mlflow_token_file)
    source = metric_sources.OfRecord(archive, of_archive(archive), settings.metric_patterns)
    tracking.Sender(tracking.MetricMirror(source, server), stop).start()
