"""Samples of a running attempt (output, CPU, memory, disk space) for the warnings about its health.

The rules are in `observation.health`; `StatusWriter` stores the warnings. Sampling takes time that the ranks need, so
it is rare: `SAMPLES` times in the period after which a condition is a warning.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.worker import process_tree
from mpijob.observation.state.attempt_state import AttemptState

if TYPE_CHECKING:
    from mpijob.errors import Finding
    from mpijob.model import JobState

SAMPLES = 24
_MAX_SAMPLES = 10 * SAMPLES
_TAIL_BYTES = 4096


class HealthMonitor:
    """The samples of one attempt; old ones are dropped."""

    def __init__(self, spec: AttemptSpec, attempt_state: AttemptState, retries: int) -> None:
        self._spec = spec
        self._attempt = attempt_state
        self._retries = retries
        self._warn_after = spec.settings.warn_after_seconds
        self._last_sample = time.monotonic()
        self._sizes: dict[int, int] = {}
        self._output: dict[int, tuple[float, float, int]] = {}
        self._steps: deque[tuple[float, int, int]] = deque(maxlen=64 * SAMPLES)
        self._memory: deque[tuple[float, int, int]] = deque(maxlen=64 * SAMPLES)
        self._cpu: dict[int, deque[tuple[float, float]]] = {}
        self._free_space: deque[tuple[float, int, int]] = deque(maxlen=_MAX_SAMPLES)

    def is_due(self) -> bool:
        """Return whether a sample is due; never where warnings are switched off, or before the ranks run."""
        interval = max(0.25, self._warn_after / SAMPLES)
        return (
            self._warn_after > 0
            and self._attempt.proved is not None
            and time.monotonic() - self._last_sample >= interval
        )

    def sample(self, now: float, used: Mapping[int, int], table: Mapping[int, process_tree.Process]) -> None:
        """Take a sample; `used` is the memory of each worker in bytes."""
        self._last_sample = time.monotonic()
        self._memory += ((now, worker, size) for worker, size in used.items())
        disk = shutil.disk_usage(self._spec.work)
        self._free_space.append((now, disk.free, disk.total))
        children = process_tree.by_parent(table)
        for rank, state in self._attempt.ranks.items():
            if rank not in self._attempt.rank_exits:
                processes = process_tree.descendants_in(state.pid, children)
                cpu = sum(process.cpu_seconds for process in processes)
                self._cpu.setdefault(rank, deque(maxlen=_MAX_SAMPLES)).append((now, cpu))
                self._read_output(now, rank)

    def _read_output(self, now: float, rank: int) -> None:
        """Note whether a rank has written output since the last sample, and its training step."""
        path = self._spec.logs / f"rank-{rank}.log"
        try:
            size = os.stat(path).st_size
        except OSError:
            return
        if size == self._sizes.get(rank, 0):
            return
        self._sizes[rank] = size
        first, _, count = self._output.get(rank, (now, now, 0))
        self._output[rank] = (first, now, count + 1)
        from mpijob.observation.health import health_sample

        with open(path, "rb") as file:
            file.seek(max(0, size - _TAIL_BYTES))
            if (step := health_sample.step_in(file.read())) is not None:
                self._steps.append((now, rank, step))

    def find_warnings(self, state: JobState, now: float) -> tuple[Finding, ...]:
        # Too early for any warning; so the rules need not be loaded.
        if now - (state.running or now) < self._warn_after / 2:
            return ()
        from mpijob.model import Sample
        from mpijob.observation.health import health_sample, warnings

        sample = health_sample.HealthSample(
            now=now,
            state=state,
            quiet_seconds=self._warn_after,
            samples=tuple(Sample(at, worker, 0.0, size, state.attempt) for at, worker, size in self._memory),
            outputs=tuple(health_sample.RankOutput(rank, *output) for rank, output in self._output.items()),
            steps=tuple(health_sample.Step(*step) for step in self._steps),
            loads=tuple(
                health_sample.Load((rank,), self._attempt.ranks[rank].worker, cores)
                for rank in self._cpu
                if (cores := self._cores(rank, now - self._warn_after)) is not None
            ),
            disk_space=tuple(health_sample.FreeSpace(*point) for point in self._free_space),
            ended=frozenset(self._attempt.rank_exits),
            was_busy=any(self._was_busy(points) for points in self._cpu.values()),
            retries=self._retries,
        )
        return warnings.find_warnings(sample)

    def _cores(self, rank: int, since: float) -> float | None:
        """Return how many cores a rank used since `since` on average; None if the samples do not tell."""
        points = self._cpu[rank]
        before = [point for point in points if point[0] <= since]
        if not before or points[-1][0] <= before[-1][0]:
            return None
        (start, used_then), (end, used_now) = before[-1], points[-1]
        # A process of the rank has ended; its CPU time is not in the sum any more.
        if used_now < used_then:
            return None
        return (used_now - used_then) / (end - start)

    @staticmethod
    def _was_busy(points: Collection[tuple[float, float]]) -> bool:
        # More CPU time than the start of Python and MPI takes.
        return bool(points) and max(cpu for _, cpu in points) > 5.0
