"""Aggregate samples: what each worker used so far, independent of how long samples are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mpijob.model import Sample
from mpijob.model.status.accounts import Tally

# Attempt and worker.
Key = tuple[int, int]
# A longer gap between samples is not filled: the usage during it is unknown.
_MAX_GAP_SECONDS = 120.0
# The time that a first sample represents.
_FIRST_SAMPLE_SECONDS = 1.0


def tally(samples: Iterable[Sample], known: Mapping[Key, Tally] | None = None) -> dict[Key, Tally]:
    """Return the tallies that samples change, added to known ones; a repeated sample counts once."""
    # A process that was restarted may report a sample again: only later ones than the last count.
    changed: dict[Key, Tally] = {}
    for sample in sorted(samples, key=lambda s: s.time):
        key = (sample.attempt, sample.worker)
        previous = changed.get(key) or (known or {}).get(key)
        if previous is None:
            previous = Tally(
                sample.worker,
                sample.attempt,
                sample.time - _FIRST_SAMPLE_SECONDS,
                sample.time - _FIRST_SAMPLE_SECONDS,
            )
        if sample.time > previous.last:
            changed[key] = _add_sample(previous, sample)
    return changed


def _add_sample(previous: Tally, sample: Sample) -> Tally:
    seconds = min(sample.time - previous.last, _MAX_GAP_SECONDS)
    return Tally(
        previous.worker,
        previous.attempt,
        previous.first,
        sample.time,
        previous.cpu_seconds + sample.cpu_cores * seconds,
        previous.byte_seconds + sample.memory_bytes * seconds,
        previous.gpu_seconds + sample.gpus * seconds,
        max(previous.peak_bytes, sample.memory_bytes),
        previous.samples + 1,
    )
