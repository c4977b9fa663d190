"""Downsamples usage: what the workers used over time, as bands and, on request, worker by worker. Pure.

A hundred workers measured each second are more than a page can show, so the number of points is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from mpijob.model import Amounts, Sample

POINTS = 720


class Band(msgspec.Struct, frozen=True):
    """One metric over time: minimum, median and maximum of all workers; `worst` is the worker with the maximum."""

    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]
    worst: tuple[int, ...]


class WorkerUsage(msgspec.Struct, frozen=True):
    """Usage of one worker at each point; null if not measured."""

    worker: int
    cpu_cores: tuple[float | None, ...]
    memory_bytes: tuple[float | None, ...]
    network: tuple[float | None, ...]
    gpus: tuple[float | None, ...]
    gpu_memory_bytes: tuple[float | None, ...]


class Usage(msgspec.Struct, frozen=True):
    """Usage of the workers; `times` are seconds since the epoch.

    `gpus` counts busy GPUs: two of four at half load are 1.0. `limit` is the limit of one worker. `workers` is empty
    unless requested.
    """

    times: tuple[float, ...]
    cpu_cores: Band
    memory_bytes: Band
    io_wait: Band
    network: Band
    gpus: Band
    gpu_memory_bytes: Band
    samples: int
    limit: Amounts | None = None
    workers: tuple[WorkerUsage, ...] = ()


def bands(
    samples: Sequence[Sample],
    *,
    points: int = POINTS,
    limit: Amounts | None = None,
    each_worker: bool = False,
) -> Usage:
    """Return the samples as bands of at most `points` points in time."""
    groups = _groups(samples, max(1, points))
    times = tuple(group[0].time for group in groups)
    return Usage(
        times,
        _band(groups, lambda sample: sample.cpu_cores),
        _band(groups, lambda sample: sample.memory_bytes),
        _band(groups, lambda sample: sample.io_wait),
        _band(groups, lambda sample: sample.network),
        _band(groups, lambda sample: sample.gpus),
        _band(groups, lambda sample: sample.gpu_memory_bytes),
        len(samples),
        limit,
        _workers(groups) if each_worker else (),
    )


def _workers(groups: list[list[Sample]]) -> tuple[WorkerUsage, ...]:
    latest = [{sample.worker: sample for sample in group} for group in groups]

    def series(worker: int, of: Callable[[Sample], float]) -> tuple[float | None, ...]:
        return tuple(of(point[worker]) if worker in point else None for point in latest)

    return tuple(
        WorkerUsage(
            worker,
            series(worker, lambda sample: sample.cpu_cores),
            series(worker, lambda sample: sample.memory_bytes),
            series(worker, lambda sample: sample.network),
            series(worker, lambda sample: sample.gpus),
            series(worker, lambda sample: sample.gpu_memory_bytes),
        )
        for worker in sorted({worker for point in latest for worker in point})
    )


def _groups(samples: Sequence[Sample], points: int) -> list[list[Sample]]:
    # Slices without samples are left out.
    if not samples:
        return []
    ordered = sorted(samples, key=lambda sample: sample.time)
    begin, span = ordered[0].time, max(ordered[-1].time - ordered[0].time, 1e-9)
    width = max(span / points, 1.0)
    slices: dict[int, list[Sample]] = {}
    for sample in ordered:
        slices.setdefault(min(int((sample.time - begin) / width), points - 1), []).append(sample)
    return list(slices.values())


def _band(groups: list[list[Sample]], of: Callable[[Sample], float]) -> Band:
    rows = []
    for group in groups:
        latest = {sample.worker: of(sample) for sample in group}
        worst = max(latest, key=lambda worker: latest[worker])
        rows.append((min(latest.values()), float(median(latest.values())), latest[worst], worst))
    low, middle, high, worst_of = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Band(low, middle, high, worst_of)
