"""What pods use, as the cluster's own Prometheus has it: network, waits and GPUs, which the metrics API does not tell.

One question for all pods of a job. The names are those of the kubelet (`container_*`) and of NVIDIA's exporter
(`DCGM_*`), whose pods may be called `exported_pod`. A Prometheus that is away, or has none of them, tells nothing.
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
    """One server."""

    def __init__(self, server: HttpService) -> None:
        self._server = server

    def used(self, namespace: str, pods: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return what each pod uses: quantities by the names that a sample has, and `time`."""
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
    """Return the Prometheus of the settings, None where none is set."""
    found = configured_service(settings.prometheus, settings.prometheus_token_file)
    return None if found is None else Prometheus(found)


def query(namespace: str, pods: Iterable[str]) -> str:
    """Return one question for everything that some pods use."""
    names = "|".join(re.escape(pod) for pod in pods).replace("\\", "\\\\")
    parts = []
    for what, text in _QUERIES.items():
        plain = text.replace("<of>", f'namespace="{namespace}",pod=~"{names}"')
        asked = [plain]
        if "DCGM" in text:
            other = text.replace("<of>", f'exported_namespace="{namespace}",exported_pod=~"{names}"')
            renamed = other.replace("by (pod)", "by (exported_pod)")
            asked.append(f'label_replace({renamed}, "pod", "$1", "exported_pod", "(.*)")')
        parts += [f'label_replace({one}, "what", "{what}", "", "")' for one in asked]
    return " or ".join(parts)
