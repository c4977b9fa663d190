"""What pods use, as the cluster's own Prometheus has it: network, waits and GPUs, which the metrics API does not tell.

One question for all pods of a job. The names are those of the kubelet (`container_*`) and of NVIDIA's exporter
(`DCGM_*`), whose pods may be called `exported_pod`. A Prometheus that is away, or has none of them, tells nothing.
"""

from __future__ import annotations

import json
import logging
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.settings import Settings

_SECONDS = 5.0
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
    """One server; a question blocks for a few seconds at most."""

    def __init__(self, address: str, token_file: str = "") -> None:
        self._address, self._token_file = address.rstrip("/"), token_file

    def used(self, namespace: str, pods: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return what each pod uses: quantities by the names that a sample has, and `time`."""
        try:
            rows = self._ask(query(namespace, pods))
        except (OSError, ValueError, KeyError) as error:
            _log.warning("Prometheus at %s does not answer: %s", self._address, error)
            return {}
        found: dict[str, dict[str, float]] = {}
        for row in rows:
            metric, (moment, value) = row["metric"], row["value"]
            used = found.setdefault(metric["pod"], {})
            used[metric["what"]] = float(value)
            used["time"] = max(float(moment), used.get("time", 0.0))
        return found

    def _ask(self, text: str) -> list[Mapping[str, Any]]:
        body = urllib.parse.urlencode({"query": text}).encode()
        request = urllib.request.Request(f"{self._address}/api/v1/query", body, self._headers())  # noqa: S310
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 the administrator's own address
            found: list[Mapping[str, Any]] = json.load(answer)["data"]["result"]
            return found

    def _headers(self) -> dict[str, str]:
        if not self._token_file:
            return {}
        with open(self._token_file, encoding="utf-8") as file:
            return {"authorization": f"Bearer {file.read().strip()}"}


def of_settings(settings: Settings) -> Prometheus | None:
    """Return the Prometheus of the settings, None where none is set."""
    address = settings.prometheus
    if not address.startswith(("http://", "https://")):
        return None
    return Prometheus(address, settings.prometheus_token_file)


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
