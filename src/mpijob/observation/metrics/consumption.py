"""What a job has taken by its end: what it held for how long, and what was measured of its use. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mpijob.model import JobState, MPIJob, Sample

_LONGEST_STEP = 60.0  # nobody measured for longer than this: what was used then is not known


class Consumption(msgspec.Struct, frozen=True, kw_only=True):
    """What was held (launcher and workers, by the spec) and used (by samples; 0 where nobody measured)."""

    seconds: float = 0.0
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    memory_byte_seconds: float = 0.0
    used_core_seconds: float = 0.0
    peak_memory_bytes: int = 0

    def told(self) -> dict[str, str]:
        """Return it as notes: names with their units, numbers as texts, without what is nothing."""
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
    """Return what the last attempt of a job has taken."""
    seconds = 0.0 if state.finished is None else state.duration_seconds(state.finished) or 0.0
    used, peak = _measured([one for one in samples if one.attempt == state.attempt])
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
    """Return the core seconds that were used, and the most memory that all workers had at one time."""
    last: dict[int, Sample] = {}
    used, peak = 0.0, 0
    for sample in sorted(samples, key=lambda one: one.time):
        before = last.get(sample.worker)
        if before is not None:
            used += before.cpu_cores * min(sample.time - before.time, _LONGEST_STEP)
        last[sample.worker] = sample
        peak = max(peak, sum(one.memory_bytes for one in last.values()))
    return used, peak
