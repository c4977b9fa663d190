"""Many samples as few points: what all workers used over time, as a band, and the one that used most. Pure.

A hundred workers measured each second are more than a screen shows; a page gets at most so many points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from mpijob.model import Sample

POINTS = 720


class Band(msgspec.Struct, frozen=True):
    """One quantity over time: least, middle and most of all workers at each point; `worst` is the worker with most."""

    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]
    worst: tuple[int, ...]


class Usage(msgspec.Struct, frozen=True):
    """What the workers used; `times` are the points' seconds since the epoch."""

    times: tuple[float, ...]
    cpu_cores: Band
    memory_bytes: Band
    io_wait: Band
    network: Band
    samples: int


def bands(samples: Sequence[Sample], *, points: int = POINTS) -> Usage:
    """Return the samples as bands over at most so many points in time."""
    groups = _groups(samples, max(1, points))
    times = tuple(group[0].time for group in groups)
    return Usage(
        times,
        _band(groups, lambda one: one.cpu_cores),
        _band(groups, lambda one: one.memory_bytes),
        _band(groups, lambda one: one.io_wait),
        _band(groups, lambda one: one.network),
        len(samples),
    )


def _groups(samples: Sequence[Sample], points: int) -> list[list[Sample]]:
    """Return the samples by slices of time, the slices without any left out."""
    if not samples:
        return []
    ordered = sorted(samples, key=lambda one: one.time)
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
