"""Measurement of each worker: CPU, memory and disk waits from /proc, GPUs from NVML, traffic from sockets."""

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
    """Measures the workers of one attempt and stores one sample a second."""

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
        # For each measurement since the last sample, how many processes of a worker waited for a disk.
        self._disk_waits: dict[int, list[int]] = {}
        self._traffic = Traffic()
        self._samples: list[Sample] = []
        # All of the last measurement; `_rank_pids` maps a rank's processes to its worker.
        self.table: dict[int, process_tree.Process] = {}
        self._children: Mapping[int, list[process_tree.Process]] = {}
        self._worker_pids: set[int] = set()
        self._rank_pids: dict[int, int] = {}
        # Commands of `mpijob exec`: they and their descendants are not part of the job's usage.
        self.exec_pids: set[int] = set()

    def is_due(self) -> bool:
        return time.monotonic() - self._last_measure >= MEASURE_SECONDS

    def measure(self, workers: Mapping[int, int], ranks: Iterable[RankState] = ()) -> dict[int, int]:
        """Return the bytes of memory that each worker (pid to index given) uses now, and store a sample if one is due.

        `ranks` are those that are no descendants of their workers, because one daemon of the launcher starts all.
        """
        self._last_measure = now = time.monotonic()
        self.table = table = process_tree.table()
        # Pids are used again.
        self.exec_pids &= table.keys()
        children = process_tree.by_parent(table, self.exec_pids)
        below = {index: process_tree.descendants_in(pid, children) for pid, index in workers.items()}
        for index, processes in self._rank_processes(ranks, children).items():
            below.get(index, []).extend(processes)
        memory = {index: self._memory(processes) for index, processes in below.items()}
        for index, processes in below.items():
            self._disk_waits.setdefault(index, []).append(sum(process.state == "D" for process in processes))
        self._children = children
        self._worker_pids = {process.pid for processes in below.values() for process in processes}
        if now - self._last_sample >= SAMPLE_SECONDS:
            self._add_samples(now, below, memory)
        return memory

    def launcher_memory(self, pid: int) -> int:
        """Return the bytes that the launcher used at the last measurement, without ranks below it."""
        launcher = self.table.get(pid)
        processes = [*([launcher] if launcher else []), *process_tree.descendants_in(pid, self._children)]
        return sum(process.memory_bytes for process in processes if process.pid not in self._worker_pids)

    def _rank_processes(
        self, ranks: Iterable[RankState], children: Mapping[int, list[process_tree.Process]]
    ) -> dict[int, list[process_tree.Process]]:
        roots = {rank.pid: rank.worker for rank in ranks}
        if not roots:
            return {}
        # Processes that outlived their parents: this process, a subreaper, is their parent now.
        orphans = {
            process.pid: self._rank_pids[process.pid]
            for process in children.get(os.getpid(), ())
            if process.pid in self._rank_pids
        }
        by_worker: dict[int, list[process_tree.Process]] = {}
        for pid, worker in (roots | orphans).items():
            if pid in self.table:
                by_worker.setdefault(worker, []).extend(
                    [self.table[pid], *process_tree.descendants_in(pid, children)]
                )
        self._rank_pids = {
            process.pid: worker for worker, processes in by_worker.items() for process in processes
        }
        return by_worker

    def _memory(self, processes: list[process_tree.Process]) -> int:
        # The sum of resident sizes counts shared pages once for each process. The exact share (PSS) is slow to read,
        # so it is read only where the limit seems to be exceeded.
        resident = sum(process.memory_bytes for process in processes)
        if resident <= self._limit:
            return resident
        return process_tree.proportional_bytes(process.pid for process in processes)

    def _add_samples(
        self, now: float, below: Mapping[int, list[process_tree.Process]], memory: Mapping[int, int]
    ) -> None:
        seconds, self._last_sample = now - self._last_sample, now
        traffic = self._traffic.rates(
            {index: [process.pid for process in processes] for index, processes in below.items()}
        )
        for index, processes in below.items():
            cpu = sum(process.cpu_seconds for process in processes)
            # Negative when a process has ended, whose time is in the sum no more.
            busy = max(0.0, cpu - self._cpu.get(index, 0.0)) / seconds
            self._cpu[index] = cpu
            gpu_ids = self._gpus_of(index)
            gpus = self._gpus.usage(gpu_ids) if gpu_ids else GpuUsage()
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
        """Store samples that are not stored yet; on a full disk they are lost."""
        if self._samples:
            with contextlib.suppress(BackendError):
                self._store.add_samples(self._uid, tuple(self._samples))
            self._samples.clear()


class GpuUsage(NamedTuple):
    """The number of busy GPUs (two at half load count as one), and the memory in use on them."""

    gpus: float = 0.0
    memory_bytes: int = 0


class Gpus:
    """The NVIDIA driver, loaded at the first use."""

    def __init__(self) -> None:
        self._driver: Any = None
        self._tried = False

    def usage(self, ids: Iterable[str]) -> GpuUsage:
        """Return the present usage of GPUs named as in CUDA_VISIBLE_DEVICES (numbers or UUIDs)."""
        driver = self._load_driver()
        if driver is None:
            return GpuUsage()
        usages = [_gpu_usage(driver, name) for name in ids]
        return GpuUsage(
            round(sum(usage.gpus for usage in usages), 3), sum(usage.memory_bytes for usage in usages)
        )

    def _load_driver(self) -> Any:
        if not self._tried:
            self._tried = True
            try:
                import pynvml

                pynvml.nvmlInit()
                self._driver = pynvml
            # The library, the driver or the permission is missing: jobs run without GPU measurements.
            except Exception:
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
    # A GPU that fell off the bus (XID 79), or a MIG slice, which has no rates.
    except driver.NVMLError:
        return GpuUsage()
