"""The watchman of one attempt: what the supervisor sees of ranks, memory and disk while they run, judged.

It looks seldom (some twenty times in the time after which something is worrying), reads a few numbers for each
rank, and loads the rules only when that time has passed. What it finds is told by the supervisor's teller.
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
    """Keeps what was seen of one attempt, as long as it matters."""

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
        """Return whether it is time to look; never where warnings are switched off, or before the ranks run."""
        interval = max(0.25, self._warn_after / SAMPLES)
        return (
            self._warn_after > 0
            and self._attempt.proved is not None
            and time.monotonic() - self._last_sample >= interval
        )

    def sample(self, now: float, used: Mapping[int, int], table: Mapping[int, process_tree.Process]) -> None:
        """Note what each worker uses, what each rank computes and says, and what the disk has left."""
        self._last_sample = time.monotonic()
        self._memory += ((now, worker, size) for worker, size in used.items())
        disk = shutil.disk_usage(self._spec.work)
        self._free_space.append((now, disk.free, disk.total))
        children = process_tree.by_parent(table)
        for rank, state in self._attempt.ranks.items():
            if rank not in self._attempt.rank_exits:
                cpu = sum(one.cpu_seconds for one in process_tree.descendants_in(state.pid, children))
                self._cpu.setdefault(rank, deque(maxlen=_MAX_SAMPLES)).append((now, cpu))
                self._read_output(now, rank)

    def _read_output(self, now: float, rank: int) -> None:
        """Note that a rank has spoken since the last look, and the step that it is at."""
        path = self._spec.logs / f"rank-{rank}.log"
        try:
            size = os.stat(path).st_size
        except OSError:
            return
        if size == self._sizes.get(rank, 0):
            return
        self._sizes[rank] = size
        first, _, beats = self._output.get(rank, (now, now, 0))
        self._output[rank] = (first, now, beats + 1)
        from mpijob.observation.health import health_sample

        with open(path, "rb") as file:
            file.seek(max(0, size - _TAIL_BYTES))
            if (step := health_sample.step_in(file.read())) is not None:
                self._steps.append((now, rank, step))

    def find_warnings(self, state: JobState, now: float) -> tuple[Finding, ...]:
        """Return the warnings that hold now."""
        if now - (state.running or now) < self._warn_after / 2:
            return ()
        from mpijob.model import Sample
        from mpijob.observation.health import health_sample, warnings

        seen = health_sample.HealthSample(
            now=now,
            state=state,
            quiet_seconds=self._warn_after,
            samples=tuple(Sample(at, worker, 0.0, size, state.attempt) for at, worker, size in self._memory),
            talks=tuple(health_sample.Traffic(rank, *talk) for rank, talk in self._output.items()),
            steps=tuple(health_sample.Step(*step) for step in self._steps),
            loads=tuple(
                health_sample.Load((rank,), self._attempt.ranks[rank].worker, cores)
                for rank in self._cpu
                if (cores := self._cores(rank, now - self._warn_after)) is not None
            ),
            rooms=tuple(health_sample.FreeSpace(*room) for room in self._free_space),
            ended=frozenset(self._attempt.rank_exits),
            was_busy=any(self._was_busy(points) for points in self._cpu.values()),
            retries=self._retries,
        )
        return warnings.judge(seen)

    def _cores(self, rank: int, since: float) -> float | None:
        """Return the cores that a rank kept busy since a moment; None while that is not known for the whole time."""
        points = self._cpu[rank]
        before = [point for point in points if point[0] <= since]
        if not before or points[-1][0] <= before[-1][0]:
            return None
        (start, used_then), (end, used_now) = before[-1], points[-1]
        if used_now < used_then:  # a process of the rank has ended meanwhile and took its count along
            return None
        return (used_now - used_then) / (end - start)

    @staticmethod
    def _was_busy(points: Collection[tuple[float, float]]) -> bool:
        """Whether a rank computed for a while, more than its start takes."""
        return bool(points) and max(cpu for _, cpu in points) > 5.0
