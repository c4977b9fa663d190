"""CPU, memory and waits of each worker, from the process table; its GPUs, from the driver; its traffic, from sockets.

Resident sizes count shared pages once per process; only when their sum passes the limit is the
exact share (PSS) asked for, because that is slow.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.supervisor.network_usage import Traffic
from mpijob.backends.local.worker import process_tree
from mpijob.errors import BackendError
from mpijob.model import RankState, Sample

MEASURE_SECONDS = 0.25
SAMPLE_SECONDS = 1.0


class Meter:
    """Measures the workers of one attempt and keeps a sample a second."""

    def __init__(
        self,
        store: Store,
        uid: str,
        attempt: int,
        limit_bytes: int,
        now: Callable[[], float],
        gpus_of: Callable[[int], tuple[str, ...]] = lambda _: (),
    ) -> None:
        self._store = store
        self._gpus, self._gpus_of = Gpus(), gpus_of
        self._now = now
        self._uid = uid
        self._attempt = attempt
        self._limit = limit_bytes
        self._last_measure = time.monotonic()
        self._last_sample = time.monotonic()
        self._cpu: dict[int, float] = {}
        self._disk_waits: dict[
            int, list[int]
        ] = {}  # at each look, how many processes of a worker waited for a disk
        self._traffic = Traffic()
        self._samples: list[Sample] = []
        self.table: dict[int, process_tree.Process] = {}  # as it was seen last
        self._children: Mapping[int, list[process_tree.Process]] = {}
        self._worker_pids: set[int] = set()  # processes of workers, at the last look
        self._rank_pids: dict[int, int] = {}  # processes of ranks that were seen: pid → worker
        self.exec_pids: set[int] = set()  # those who only look at a worker are not measured with it

    def is_due(self) -> bool:
        """Return whether it is time to look again."""
        return time.monotonic() - self._last_measure >= MEASURE_SECONDS

    def measure(self, workers: Mapping[int, int], ranks: Iterable[RankState] = ()) -> dict[int, int]:
        """Return the bytes that each worker uses now (pid → index given), keeping samples by the way.

        `ranks` are those that a daemon outside the workers has started.
        """
        self._last_measure = now = time.monotonic()
        self.table = table = process_tree.table()
        self.exec_pids &= table.keys()
        children = process_tree.by_parent(table, self.exec_pids)
        below = {index: process_tree.descendants_in(pid, children) for pid, index in workers.items()}
        for index, found in self._rank_processes(ranks, children).items():
            below.get(index, []).extend(found)
        memory = {index: self._memory(found) for index, found in below.items()}
        for index, found in below.items():
            self._disk_waits.setdefault(index, []).append(sum(process.state == "D" for process in found))
        self._children, self._worker_pids = children, {one.pid for found in below.values() for one in found}
        if now - self._last_sample >= SAMPLE_SECONDS:
            self._add_samples(now, below, memory)
        return memory

    def launcher_memory(self, pid: int) -> int:
        """Return the bytes that the launcher used at the last look: its processes but those of workers."""
        own = self.table.get(pid)
        found = [*([own] if own else []), *process_tree.descendants_in(pid, self._children)]
        return sum(one.memory_bytes for one in found if one.pid not in self._worker_pids)

    def _rank_processes(
        self, ranks: Iterable[RankState], children: Mapping[int, list[process_tree.Process]]
    ) -> dict[int, list[process_tree.Process]]:
        """Return the processes of ranks by worker, also those that outlived their parents and are ours now."""
        roots = {rank.pid: rank.worker for rank in ranks}
        if not roots:
            return {}
        left = {
            one.pid: self._rank_pids[one.pid]
            for one in children.get(os.getpid(), ())
            if one.pid in self._rank_pids
        }
        found: dict[int, list[process_tree.Process]] = {}
        for pid, worker in (roots | left).items():
            if pid in self.table:
                found.setdefault(worker, []).extend(
                    [self.table[pid], *process_tree.descendants_in(pid, children)]
                )
        self._rank_pids = {one.pid: worker for worker, those in found.items() for one in those}
        return found

    def _memory(self, found: list[process_tree.Process]) -> int:
        resident = sum(process.memory_bytes for process in found)
        if resident <= self._limit:
            return resident
        return process_tree.proportional_bytes(process.pid for process in found)

    def _add_samples(
        self, now: float, below: Mapping[int, list[process_tree.Process]], memory: Mapping[int, int]
    ) -> None:
        seconds, self._last_sample = now - self._last_sample, now
        traffic = self._traffic.rates({index: [one.pid for one in found] for index, found in below.items()})
        for index, found in below.items():
            cpu = sum(process.cpu_seconds for process in found)
            busy = max(0.0, cpu - self._cpu.get(index, 0.0)) / seconds
            self._cpu[index] = cpu
            mine = self._gpus_of(index)
            gpus = self._gpus.usage(mine) if mine else GpuUsage()
            waits = self._disk_waits.pop(index, [])
            io_wait = round(sum(waits) / max(1, len(waits)), 3)
            network = round(traffic.get(index, 0.0), 1)
            self._samples.append(
                Sample(
                    self._now(), index, round(busy, 3), memory[index], self._attempt, *gpus, io_wait, network
                )
            )
        self.flush()

    def flush(self) -> None:
        """Write the samples that are not yet in the store."""
        if self._samples:
            with contextlib.suppress(BackendError):  # a full disk costs samples, never the job
                self._store.add_samples(self._uid, tuple(self._samples))
            self._samples.clear()


class GpuUsage(NamedTuple):
    """How many GPUs are busy (two at half load are one), and the memory that is taken on them."""

    gpus: float = 0.0
    memory_bytes: int = 0


class Gpus:
    """The driver, asked when first needed."""

    def __init__(self) -> None:
        self._driver: Any = None
        self._tried = False

    def usage(self, ids: Iterable[str]) -> GpuUsage:
        """Return what these GPUs do now; names are those of CUDA_VISIBLE_DEVICES, numbers or UUIDs."""
        driver = self._load_driver()
        if driver is None:
            return GpuUsage()
        found = [_gpu_usage(driver, name) for name in ids]
        return GpuUsage(round(sum(one.gpus for one in found), 3), sum(one.memory_bytes for one in found))

    def _load_driver(self) -> Any:
        if not self._tried:
            self._tried = True
            try:
                import pynvml

                pynvml.nvmlInit()
                self._driver = pynvml
            except Exception:  # no library, no driver, no right: whatever it is, a job goes on without it
                self._driver = None
        return self._driver


def _gpu_usage(driver: Any, name: str) -> GpuUsage:
    try:
        by_number = name.isdecimal()
        handle = (
            driver.nvmlDeviceGetHandleByIndex(int(name))
            if by_number
            else driver.nvmlDeviceGetHandleByUUID(name)
        )
        share = driver.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        return GpuUsage(share, int(driver.nvmlDeviceGetMemoryInfo(handle).used))
    except driver.NVMLError:  # a GPU that fell off the bus, a MIG slice without rates
        return GpuUsage()
