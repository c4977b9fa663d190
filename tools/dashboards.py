"""Write the Grafana dashboards: `python -m tools.dashboards`. A test runs every query on a real Prometheus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parents[1] / "deploy" / "monitoring" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_NS = '{namespace=~"$namespace"}'
_JOB = '{namespace=~"$namespace",job=~"$job"}'

Panel = tuple[str, str, str, list[tuple[str, str]]]  # title, unit, kind, queries with their legends

CLUSTER: list[Panel] = [
    ("Jobs by phase", "short", "timeseries", [(f"sum by (phase) (mpijob_jobs{_NS})", "{{phase}}")]),
    ("Workers by phase", "short", "timeseries", [(f"sum by (phase) (mpijob_workers{_NS})", "{{phase}}")]),
    ("Success rate, last hour", "percentunit", "stat", [("mpijob:success_ratio:1h", "{{namespace}}")]),
    ("Jobs ended", "short", "timeseries",
     [(f"sum by (phase) (increase(mpijob_jobs_finished_total{_NS}[10m]))", "{{phase}}")]),
    ("Failures by cause", "short", "timeseries",
     [(f"topk(10, sum by (cause) (increase(mpijob_job_failures_total{_NS}[1h])))", "{{cause}}")]),
    ("Stages, 90 %", "s", "timeseries", [("mpijob:stage_seconds:p90_1h", "{{stage}}")]),
    ("Cores in use", "short", "timeseries", [(f"sum by (namespace) (mpijob_worker_cpu_cores{_NS})", "{{namespace}}")]),
    ("Memory in use", "bytes", "timeseries",
     [(f"sum by (namespace) (mpijob_worker_memory_bytes{_NS})", "{{namespace}}")]),
    ("GPUs held and busy", "short", "timeseries",
     [(f"sum(mpijob_gpus_held{_NS})", "held"), (f"sum(mpijob_worker_gpus_busy{_NS})", "busy")]),
]  # fmt: skip
JOB: list[Panel] = [
    ("Cores by worker", "short", "timeseries", [(f"mpijob_worker_cpu_cores{_JOB}", "worker {{worker}}")]),
    ("Memory by worker", "bytes", "timeseries", [(f"mpijob_worker_memory_bytes{_JOB}", "worker {{worker}}")]),
    ("Network by worker", "Bps", "timeseries", [(f"mpijob_worker_network_bytes{_JOB}", "worker {{worker}}")]),
    ("Time in MPI by rank", "percentunit", "timeseries", [(f"mpijob_rank_mpi_ratio{_JOB}", "rank {{rank}}")]),
    ("Sent by MPI, by rank", "Bps", "timeseries", [(f"rate(mpijob_rank_sent_bytes{_JOB}[1m])", "rank {{rank}}")]),
    ("MPI messages a second", "short", "timeseries",
     [(f"sum by (job) (rate(mpijob_rank_sent_messages{_JOB}[1m]))", "{{job}}")]),
    ("MPI bandwidth of a pair", "Bps", "timeseries",
     [(f"mpijob_mpi_bandwidth_bytes{_JOB}", "usual"), (f"mpijob_mpi_slowest_bandwidth_bytes{_JOB}", "slowest")]),
    ("MPI latency", "s", "timeseries", [(f"mpijob_mpi_latency_seconds{_JOB}", "{{job}}")]),
    ("Time in MPI by kind of call", "s", "timeseries", [(f"mpijob_mpi_kind_seconds{_JOB}", "{{kind}}")]),
    ("Waiting for disks by worker", "short", "timeseries",
     [(f"mpijob_worker_io_waiting{_JOB}", "worker {{worker}}")]),
    ("GPUs by worker", "short", "timeseries", [(f"mpijob_worker_gpus_busy{_JOB}", "worker {{worker}}")]),
    ("GPU memory by worker", "bytes", "timeseries", [(f"mpijob_worker_gpu_memory_bytes{_JOB}", "worker {{worker}}")]),
    ("Training metrics", "short", "timeseries", [(f"mpijob_training_metric{_JOB}", "{{metric}}")]),
    ("Progress", "percentunit", "gauge", [(f"mpijob_training_progress_ratio{_JOB}", "{{job}}")]),
    ("Busiest worker over the middle one", "short", "timeseries",
     [(f"max(mpijob_worker_cpu_cores{_JOB}) / clamp_min(quantile(0.5, mpijob_worker_cpu_cores{_JOB}), 0.01)", "x")]),
]  # fmt: skip
ADMIN: list[Panel] = [
    ("Queue depth", "short", "timeseries",
     [(f"sum by (namespace, queue) (mpijob_queue_depth{_NS})", "{{namespace}} {{queue}}")]),
    ("Longest wait now", "s", "timeseries",
     [(f"max by (namespace) (mpijob_queue_oldest_seconds{_NS})", "{{namespace}}")]),
    ("Wait in the queue", "s", "timeseries",
     [('histogram_quantile(0.5, sum by (le) (rate(mpijob_stage_seconds_bucket{stage="queue"}[1h])))', "half"),
      ('histogram_quantile(0.95, sum by (le) (rate(mpijob_stage_seconds_bucket{stage="queue"}[1h])))', "95 %")]),
    ("Core-hours held and used", "short", "timeseries",
     [('sum by (kind) (increase(mpijob_hours_total{resource="core",namespace=~"$namespace"}[1h]))', "{{kind}}")]),
    ("GPU-hours allocated and used", "short", "timeseries",
     [('sum by (kind) (increase(mpijob_hours_total{resource="gpu",namespace=~"$namespace"}[1h]))', "{{kind}}")]),
    ("Cost, last day", "short", "timeseries",
     [(f"sum by (namespace, currency) (increase(mpijob_cost_total{_NS}[1d]))", "{{namespace}}")]),
    ("Budget spent", "percentunit", "gauge", [(f"mpijob_budget_spent_ratio{_NS}", "{{namespace}}")]),
    ("Age of the newest sample", "s", "stat", [("time() - mpijob_newest_sample_timestamp_seconds", "age")]),
    ("Exporter: time of a look", "s", "timeseries", [("mpijob_exporter_look_seconds", "look")]),
    ("Exporter: memory", "bytes", "timeseries", [("mpijob_process_resident_memory_bytes", "{{instance}}")]),
    ("Exporter: up", "short", "stat", [("mpijob_up", "{{instance}}")]),
    ("Record: stored lines and bytes", "short", "timeseries",
     [("mpijob_record_lines", "lines"), ("mpijob_record_bytes", "bytes")]),
]  # fmt: skip
BOARDS = {
    "cluster": ("MPI jobs: cluster", CLUSTER, ("namespace",)),
    "job": ("MPI jobs: one job", JOB, ("namespace", "job")),
    "administrator": ("MPI jobs: administrator", ADMIN, ("namespace",)),
}


def dashboard(name: str) -> dict[str, Any]:
    """Return one dashboard as Grafana reads it."""
    title, panels, variables = BOARDS[name]
    return {
        "uid": f"mpijob-{name}",
        "title": title,
        "tags": ["mpijob"],
        "schemaVersion": 39,
        "refresh": "5s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), *(_variable(one) for one in variables)]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(panels)],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str) -> dict[str, Any]:
    metric = "mpijob_jobs" if name == "namespace" else 'mpijob_worker_cpu_cores{namespace=~"$namespace"}'
    return {
        "name": name, "label": name, "type": "query", "datasource": SOURCE, "includeAll": True, "allValue": ".*",
        "multi": True, "refresh": 2, "query": {"query": f"label_values({metric}, {name})", "refId": name},
    }  # fmt: skip


def _panel(number: int, title: str, unit: str, kind: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "id": number + 1,
        "title": title,
        "type": kind,
        "datasource": SOURCE,
        "gridPos": {"h": 8, "w": 8, "x": number % 3 * 8, "y": number // 3 * 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(65 + at), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(queries)
        ],
    }


def text(name: str) -> str:
    """Return the file of one dashboard."""
    return json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all dashboards."""
    for name in BOARDS:
        (PLACE / f"{name}.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
