"""What the workers use, as the cluster's metrics API measured it last."""

from __future__ import annotations

from mpijob.backends.kubernetes import gathering, states
from mpijob.backends.kubernetes.api import Api, ApiError
from mpijob.backends.kubernetes.gathering import Found
from mpijob.backends.kubernetes.kinds import Kind
from mpijob.backends.kubernetes.logs import role_of
from mpijob.dialects.seen_fields import time_of
from mpijob.model import Role, Sample, quantity

METRICS_API = "metrics.k8s.io/v1beta1"
POD_METRICS = Kind(METRICS_API, "PodMetrics", "pods")


def samples(api: Api, found: Found, served: frozenset[str]) -> tuple[Sample, ...]:
    """Return one sample for each worker that is measured; none where the cluster has no metrics API."""
    if METRICS_API not in served:
        return ()
    workers = [pod for pod in gathering.pods(api, found.kind, found.job) if role_of(pod) is Role.WORKER]
    found_samples = []
    for pod in workers:
        sample = _sample(api, pod, gathering.attempt_of(found.job))
        found_samples += [sample] if sample is not None else []
    return tuple(found_samples)


def _sample(api: Api, pod: states.Document, attempt: int) -> Sample | None:
    metadata = pod["metadata"]
    try:
        measured = api.find(POD_METRICS.path(metadata["namespace"], metadata["name"]))
    except ApiError as error:
        if error.status in (403, 503):
            return None
        raise
    if measured is None:
        return None
    used = [one["usage"] for one in measured.get("containers") or ()]
    cores = sum(quantity.parse(one.get("cpu", "0")) for one in used)
    memory = sum(quantity.parse(one.get("memory", "0")) for one in used)
    moment = time_of(measured.get("timestamp", "")) or 0.0
    return Sample(moment, states.worker_index(pod), cores, int(memory), attempt)
