"""Usage of pods that the metrics API does not have, from the cluster's Prometheus: network, I/O waits, GPUs.

One query for all pods of a job. The metrics are those of the kubelet (`container_*`) and of NVIDIA's exporter
(`DCGM_*`). A Prometheus that does not respond, or does not have them, adds nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from mpijob.backends.kubernetes.logs.http_service import FAILURES, HttpService, configured_service
from mpijob.settings import Settings

_QUERIES = {
    "cpu_cores": 'sum by (pod) (rate(container_cpu_usage_seconds_total{<of>,container!=""}[1m]))',
    "memory_bytes": 'sum by (pod) (container_memory_working_set_bytes{<of>,container!=""})',
    "network": "sum by (pod) (rate(container_network_receive_bytes_total{<of>}[1m]))"
    " + sum by (pod) (rate(container_network_transmit_bytes_total{<of>}[1m]))",
    "io_wait": "sum by (pod) (rate(container_pressure_io_waiting_seconds_total{<of>}[1m]))",
    "gpus": "sum by (pod) (DCGM_FI_DEV_GPU_UTIL{<of>}) / 100",
    "gpu_memory_bytes": "sum by (pod) (DCGM_FI_DEV_FB_USED{<of>}) * 1048576",
}
_log = logging.getLogger(__name__)


class Prometheus:
    """A Prometheus server."""

    def __init__(self, server: HttpService) -> None:
        self._server = server

    def used(self, namespace: str, pods: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the usage of each pod by the field names of a sample, and `time`; {} if it does not respond."""
        try:
            rows = self._server.post("/api/v1/query", {"query": query(namespace, pods)})["result"]
        except FAILURES as error:
            _log.warning("Prometheus at %s does not respond: %s", self._server.address, error)
            return {}
        found: dict[str, dict[str, float]] = {}
        for row in rows:
            metric, (moment, value) = row["metric"], row["value"]
            used = found.setdefault(metric["pod"], {})
            used[metric["what"]] = float(value)
            used["time"] = max(float(moment), used.get("time", 0.0))
        return found


def of_settings(settings: Settings) -> Prometheus | None:
    """Return the Prometheus of the settings, None if none is set."""
    found = configured_service(settings.prometheus, settings.prometheus_token_file)
    return None if found is None else Prometheus(found)


def query(namespace: str, pods: Iterable[str]) -> str:
    """Return one query for all values of the pods."""
    names = "|".join(re.escape(pod) for pod in pods).replace("\\", "\\\\")
    parts = []
    for what, text in _QUERIES.items():
        plain = text.replace("<of>", f'namespace="{namespace}",pod=~"{names}"')
        variants = [plain]
        # A ServiceMonitor without honorLabels renames the exporter's pod and namespace labels.
        if "DCGM" in text:
            other = text.replace("<of>", f'exported_namespace="{namespace}",exported_pod=~"{names}"')
            renamed = other.replace("by (pod)", "by (exported_pod)")
            variants.append(f'label_replace({renamed}, "pod", "$1", "exported_pod", "(.*)")')
        # `or` drops the name of the metric, so it becomes a label.
        parts += [f'label_replace({variant}, "what", "{what}", "", "")' for variant in variants]
    return " or ".join(parts)
