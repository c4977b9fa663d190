"""What a job consumed by its end: allocated resources over time, and measured usage. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mpijob.model import JobState, MPIJob, Sample

# A longer time between two samples was not measured, so its usage is unknown.
_LONGEST_STEP = 60.0


class Consumption(msgspec.Struct, frozen=True, kw_only=True):
    """Allocated (launcher and workers, by the spec) and used (by samples; 0 if not measured) resources."""

    seconds: float = 0.0
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    memory_byte_seconds: float = 0.0
    used_core_seconds: float = 0.0
    peak_memory_bytes: int = 0

    def as_notes(self) -> dict[str, str]:
        """Return it as notes: names with units, numbers as strings, without zeros."""
        notes = {
            "seconds": f"{self.seconds:.3f}",
            "core-hours": f"{self.core_seconds / 3600:.6f}",
            "gpu-hours": f"{self.gpu_seconds / 3600:.6f}" if self.gpu_seconds else "",
            "memory-gib-hours": f"{self.memory_byte_seconds / 2**30 / 3600:.6f}",
            "used-core-hours": f"{self.used_core_seconds / 3600:.6f}" if self.used_core_seconds else "",
            "peak-memory-bytes": str(self.peak_memory_bytes or ""),
        }
        return {name: value for name, value in notes.items() if value}


def consumed(state: JobState, job: MPIJob | None, samples: Iterable[Sample] = ()) -> Consumption:
    """Return what the last attempt of a job consumed."""
    seconds = 0.0 if state.finished is None else state.duration_seconds(state.finished) or 0.0
    used, peak = _measured([sample for sample in samples if sample.attempt == state.attempt])
    if job is None:
        return Consumption(seconds=seconds, used_core_seconds=used, peak_memory_bytes=peak)
    held = job.asked
    return Consumption(
        seconds=seconds,
        core_seconds=seconds * held.cores,
        gpu_seconds=seconds * held.gpus,
        memory_byte_seconds=seconds * held.memory_bytes,
        used_core_seconds=used,
        peak_memory_bytes=peak,
    )


def _measured(samples: list[Sample]) -> tuple[float, int]:
    # The used core seconds, and the largest sum of memory over all workers at one time.
    last: dict[int, Sample] = {}
    used, peak = 0.0, 0
    for sample in sorted(samples, key=lambda sample: sample.time):
        before = last.get(sample.worker)
        if before is not None:
            used += before.cpu_cores * min(sample.time - before.time, _LONGEST_STEP)
        last[sample.worker] = sample
        peak = max(peak, sum(sample.memory_bytes for sample in last.values()))
    return used, peak
