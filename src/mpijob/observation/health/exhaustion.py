"""Finds memory and disks that are nearly full, or will be if their steady growth continues."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import correlation, linear_regression

from mpijob.errors import Finding, Fix, Severity
from mpijob.model import Sample, WorkerState
from mpijob.model.spec.quantity import as_bytes
from mpijob.observation.health.health_sample import HealthSample, span

FULL_SHARE, HALF_SHARE, LOW_SHARE = 0.95, 0.5, 0.01
HORIZON_SECONDS = 1800.0
_FRESH_SECONDS = 90.0
_MIB = 1 << 20


def memory(sample: HealthSample) -> Iterator[Finding]:
    """Yield the workers whose memory is nearly full, or will be soon."""
    for worker in sample.state.workers:
        of_worker = [
            s for s in sample.samples if s.worker == worker.index and s.attempt == sample.state.attempt
        ]
        if of_worker and worker.memory_limit_bytes and sample.now - of_worker[-1].time < _FRESH_SECONDS:
            yield from _memory_of(sample, worker, worker.memory_limit_bytes, of_worker)


def _memory_of(
    sample: HealthSample, worker: WorkerState, limit: int, samples: Sequence[Sample]
) -> Iterator[Finding]:
    used = samples[-1].memory_bytes
    left = _seconds_left(sample, [(s.time, s.memory_bytes) for s in samples], limit)
    if used < HALF_SHARE * limit or (left is None and used < FULL_SHARE * limit):
        return
    text = (
        f"Worker {worker.index} uses {as_bytes(used)} of its {as_bytes(limit)} of memory ({used / limit:.0%})"
    )
    rate = f" and grows: at this rate the limit is reached in about {span(left)}" if left is not None else ""
    larger = f"{math.ceil(limit * 1.5 / _MIB / 64) * 64}Mi"
    workers = f"the workers of group '{worker.group}'" if worker.group else "the workers"
    command = "" if worker.group else f"mpijob clone {sample.state.ref.name} --memory "
    patch = {} if worker.group else {"resources": {"memory": larger}}
    yield Finding(
        "MEMORY_NEAR_LIMIT",
        f"{text}{rate}.",
        f"give {workers} more memory: {command}{larger}",
        field="groups" if worker.group else "resources.memory",
        severity=Severity.WARNING,
        worker=worker.index,
        fixes=(
            Fix(f"give {workers} more memory: {larger}", patch),
            Fix("use smaller batches or chunks of data, or write a checkpoint now"),
        ),
        confidence=0.95 if used >= FULL_SHARE * limit else 0.8,
    )


def _seconds_left(sample: HealthSample, points: Sequence[tuple[float, float]], limit: float) -> float | None:
    # None unless the growth has lasted, is linear, and continues in the second half. The horizon is bounded
    # by how long it has lasted: a short trend predicts little.
    recent = [point for point in points if point[0] >= sample.now - 2.5 * sample.quiet_seconds]
    lasted = recent[-1][0] - recent[0][0] if recent else 0.0
    if len(recent) < 4 or lasted < sample.quiet_seconds / 2:
        return None
    slope, fit = _trend(recent)
    later, _ = _trend(recent[len(recent) // 2 :])
    if slope <= 0 or fit < 0.9 or later < slope / 2:
        return None
    left = max(0.0, (limit - recent[-1][1]) / slope)
    return left if left <= min(HORIZON_SECONDS, 10 * lasted) else None


def _trend(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    # The slope of the regression line and its coefficient of determination (1 is a perfect fit).
    times, values = [point[0] - points[0][0] for point in points], [float(point[1]) for point in points]
    # Neither is defined for constant values.
    if len(points) < 2 or times[-1] <= 0 or min(values) == max(values):
        return 0.0, 0.0
    return linear_regression(times, values).slope, correlation(times, values) ** 2


def disk(sample: HealthSample) -> Iterator[Finding]:
    if not sample.disk_space:
        return
    last = sample.disk_space[-1]
    used = [(space.time, float(space.total_bytes - space.free_bytes)) for space in sample.disk_space]
    left = _seconds_left(sample, used, last.total_bytes)
    low = last.free_bytes < LOW_SHARE * last.total_bytes
    if not low and (left is None or last.free_bytes > 0.25 * last.total_bytes):
        return
    rate = f": at the present rate it is full in about {span(left)}" if left is not None else ""
    yield Finding(
        "DISK_FILLING",
        f"The disk that the job writes to has {as_bytes(last.free_bytes)} of {as_bytes(last.total_bytes)} left{rate}.",
        "free disk space, or keep fewer checkpoints",
        severity=Severity.WARNING,
        fixes=(
            Fix("remove old checkpoints, and jobs that are no longer needed (mpijob delete NAME)"),
            Fix("let the job keep fewer checkpoints, or write them to another volume"),
        ),
        confidence=0.9 if low else 0.8,
    )
