"""The resource usage of workers, from the cluster's metrics API and its Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.logs.pod_logs import workers_of
from mpijob.backends.kubernetes.metrics.prometheus_query import Prometheus
from mpijob.backends.kubernetes.status import derive_state, job_objects
from mpijob.backends.kubernetes.status.job_objects import Found
from mpijob.formats.status.nested_fields import time_of
from mpijob.model import Sample
from mpijob.model.spec import quantity

METRICS_API = "metrics.k8s.io/v1beta1"
POD_METRICS = Kind(METRICS_API, "PodMetrics", "pods")


def samples(
    api: Api, found: Found, served: frozenset[str], prometheus: Prometheus | None = None
) -> tuple[Sample, ...]:
    """Return one sample for each measured worker; none if the cluster measures nothing."""
    if METRICS_API not in served and prometheus is None:
        return ()
    workers = workers_of(job_objects.pods(api, found.kind, found.job))
    names = [pod["metadata"]["name"] for pod in workers.values()]
    by_pod = {} if prometheus is None or not names else prometheus.used(found.ref.namespace, names)
    attempt = job_objects.attempt_of(found.job)
    measured = []
    for index, pod in sorted(workers.items()):
        sample = _sample(api, pod, attempt) if METRICS_API in served else None
        sample = _with(sample, by_pod.get(pod["metadata"]["name"], {}), index, attempt)
        measured += [sample] if sample is not None else []
    return tuple(measured)


def _with(sample: Sample | None, used: Mapping[str, float], worker: int, attempt: int) -> Sample | None:
    """Return the sample with Prometheus' values; CPU and memory are those of the metrics API if it has them."""
    if not used:
        return sample
    given = {name: value for name, value in used.items() if name != "time"}
    if sample is None:
        sample = Sample(used["time"], worker, 0.0, 0, attempt)
    else:
        given = {name: value for name, value in given.items() if name not in ("cpu_cores", "memory_bytes")}
    whole = {name: int(value) if name.endswith("_bytes") else value for name, value in given.items()}
    return msgspec.structs.replace(sample, **whole)


def _sample(api: Api, pod: derive_state.Document, attempt: int) -> Sample | None:
    metadata = pod["metadata"]
    try:
        measured = api.find(POD_METRICS.path(metadata["namespace"], metadata["name"]))
    except ApiError as error:
        # 503: metrics-server is down, and the APIService stays registered.
        if error.status in (403, 503):
            return None
        raise
    if measured is None:
        return None
    return measured_sample(measured, derive_state.worker_index(pod), attempt)


def measured_sample(measured: derive_state.Document, worker: int, attempt: int) -> Sample:
    """Return the sample in a PodMetrics object."""
    used = [container["usage"] for container in measured.get("containers") or ()]
    cores = sum(quantity.parse(usage.get("cpu", "0")) for usage in used)
    memory = sum(quantity.parse(usage.get("memory", "0")) for usage in used)
    return Sample(time_of(measured.get("timestamp", "")) or 0.0, worker, cores, int(memory), attempt)
