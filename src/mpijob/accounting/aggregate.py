"""Summing samples up: what each worker used so far, whatever happens to the samples later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mpijob.model import Sample
from mpijob.model.status.accounts import Tally

Key = tuple[int, int]  # attempt, worker
_MOST_SECONDS = 120.0  # a longer silence is not filled: nobody knows what was used then
_FIRST_SECONDS = 1.0  # what a first sample stands for


def tally(samples: Iterable[Sample], known: Mapping[Key, Tally] | None = None) -> dict[Key, Tally]:
    """Return the tallies that samples change, added to what is known already; a sample told twice counts once."""
    changed: dict[Key, Tally] = {}
    for sample in sorted(samples, key=lambda one: one.time):
        key = (sample.attempt, sample.worker)
        before = changed.get(key) or (known or {}).get(key)
        if before is None:
            before = Tally(
                sample.worker, sample.attempt, sample.time - _FIRST_SECONDS, sample.time - _FIRST_SECONDS
            )
        if sample.time > before.last:
            changed[key] = _plus(before, sample)
    return changed


def _plus(before: Tally, sample: Sample) -> Tally:
    seconds = min(sample.time - before.last, _MOST_SECONDS)
    return Tally(
        before.worker,
        before.attempt,
        before.first,
        sample.time,
        before.cpu_seconds + sample.cpu_cores * seconds,
        before.byte_seconds + sample.memory_bytes * seconds,
        before.gpu_seconds + sample.gpus * seconds,
        max(before.peak_bytes, sample.memory_bytes),
        before.samples + 1,
    )
