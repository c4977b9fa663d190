"""Running a cluster's recorder in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mpijob.errors import Unsupported
from mpijob.settings import CLUSTER, RateSetting, Settings, history_directory

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.api import Api
    from mpijob.client.exporting import Rates
    from mpijob.history.archive import Archive


def record(
    settings: Settings,
    namespace: str,
    stop: threading.Event,
    ready: Callable[[str], None] = lambda _: None,
    *,
    metrics: tuple[str, int] | None = None,
) -> None:
    """Record the jobs of a namespace, "" for all, until `stop`; `ready` hears where the record is.

    `metrics` is an address and a port at which Prometheus is answered.
    """
    if settings.engine != CLUSTER:
        raise Unsupported(
            "this machine's jobs need no recorder: their record is kept when they are deleted",
            hint="give the cluster with --context NAME, or set MPIJOB_ENGINE=kubernetes",
        )
    from mpijob.backends.kubernetes import kubeconfig, platform_metrics
    from mpijob.backends.kubernetes.api import Api
    from mpijob.backends.kubernetes.failures import telling
    from mpijob.backends.kubernetes.recorder import Recorder
    from mpijob.backends.kubernetes.remembered import store_of
    from mpijob.history.archive import Archive
    from mpijob.history.keeping import Policy

    access = kubeconfig.load(path=settings.kubeconfig, context=settings.context)
    directory = history_directory(settings, access.context or "cluster")
    archive = Archive(directory, shared=True, database=settings.history_database, objects=store_of(settings))
    api = Api(access)
    rates = partial(_rates, api, settings)
    server = None if metrics is None else _serve_metrics(archive, settings, rates, *metrics)
    if settings.traces:
        _send_traces(archive, settings, stop)
    if settings.mlflow:
        _mirror(archive, settings, stop)
    try:
        with telling("record jobs"):
            prometheus = platform_metrics.of_settings(settings)
            recorder = Recorder(api, archive, Policy.of(settings), namespace, settings.rules, prometheus)
            recorder.run(stop, lambda: ready(directory))
    finally:
        if server is not None:
            server.shutdown()
        archive.close()


def _rates(api: Api, settings: Settings) -> Mapping[str, RateSetting]:
    from mpijob.backends.kubernetes.failures import telling
    from mpijob.backends.kubernetes.governing import Governor

    with telling("read what hours cost"):
        return {**settings.rates, **Governor(api).rates()}


def _serve_metrics(archive: Archive, settings: Settings, rates: Rates, address: str, port: int) -> Any:
    from mpijob.backends.kubernetes.remembered import of_archive
    from mpijob.client import exporting, sources

    source = sources.OfRecord(archive, of_archive(archive), settings.metric_patterns)
    return exporting.serve(exporting.exporter(source, settings, rates), address, port)


def _send_traces(archive: Archive, settings: Settings, stop: threading.Event) -> None:
    from mpijob.backends.kubernetes.remembered import of_archive
    from mpijob.client import sources, tracing

    tracing.Sender(sources.OfRecord(archive, of_archive(archive)), settings.traces, stop).start()


def _mirror(archive: Archive, settings: Settings, stop: threading.Event) -> None:
    from mpijob.backends.kubernetes.remembered import of_archive
    from mpijob.client import mlflow, sources, tracking

    server = mlflow.Server(settings.mlflow, settings.mlflow_token_file)
    source = sources.OfRecord(archive, of_archive(archive), settings.metric_patterns)
    tracking.Sender(tracking.Mirror(source, server), stop).start()
