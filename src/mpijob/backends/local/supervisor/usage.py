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

LOOK_SECONDS = 0.25
KEEP_SECONDS = 1.0


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
        self._looked = time.monotonic()
        self._kept = time.monotonic()
        self._cpu: dict[int, float] = {}
        self._waits: dict[
            int, list[int]
        ] = {}  # at each look, how many processes of a worker waited for a disk
        self._traffic = Traffic()
        self._samples: list[Sample] = []
        self.table: dict[int, process_tree.Process] = {}  # as it was seen last
        self._children: Mapping[int, list[process_tree.Process]] = {}
        self._measured: set[int] = set()  # processes of workers, at the last look
        self._members: dict[int, int] = {}  # processes of ranks that were seen: pid → worker
        self.guests: set[int] = set()  # those who only look at a worker are not measured with it

    def due(self) -> bool:
        """Return whether it is time to look again."""
        return time.monotonic() - self._looked >= LOOK_SECONDS

    def measure(self, workers: Mapping[int, int], ranks: Iterable[RankState] = ()) -> dict[int, int]:
        """Return the bytes that each worker uses now (pid → index given), keeping samples by the way.

        `ranks` are those that a daemon outside the workers has started.
        """
        self._looked = now = time.monotonic()
        self.table = table = process_tree.table()
        self.guests &= table.keys()
        children = process_tree.by_parent(table, self.guests)
        below = {index: process_tree.below(pid, children) for pid, index in workers.items()}
        for index, found in self._of_ranks(ranks, children).items():
            below.get(index, []).extend(found)
        memory = {index: self._memory(found) for index, found in below.items()}
        for index, found in below.items():
            self._waits.setdefault(index, []).append(sum(process.state == "D" for process in found))
        self._children, self._measured = children, {one.pid for found in below.values() for one in found}
        if now - self._kept >= KEEP_SECONDS:
            self._keep(now, below, memory)
        return memory

    def launcher_memory(self, pid: int) -> int:
        """Return the bytes that the launcher used at the last look: its processes but those of workers."""
        own = self.table.get(pid)
        found = [*([own] if own else []), *process_tree.below(pid, self._children)]
        return sum(one.memory_bytes for one in found if one.pid not in self._measured)

    def _of_ranks(
        self, ranks: Iterable[RankState], children: Mapping[int, list[process_tree.Process]]
    ) -> dict[int, list[process_tree.Process]]:
        """Return the processes of ranks by worker, also those that outlived their parents and are ours now."""
        roots = {rank.pid: rank.worker for rank in ranks}
        if not roots:
            return {}
        left = {
            one.pid: self._members[one.pid]
            for one in children.get(os.getpid(), ())
            if one.pid in self._members
        }
        found: dict[int, list[process_tree.Process]] = {}
        for pid, worker in (roots | left).items():
            if pid in self.table:
                found.setdefault(worker, []).extend([self.table[pid], *process_tree.below(pid, children)])
        self._members = {one.pid: worker for worker, those in found.items() for one in those}
        return found

    def _memory(self, found: list[process_tree.Process]) -> int:
        resident = sum(process.memory_bytes for process in found)
        if resident <= self._limit:
            return resident
        return process_tree.shared_fairly(process.pid for process in found)

    def _keep(
        self, now: float, below: Mapping[int, list[process_tree.Process]], memory: Mapping[int, int]
    ) -> None:
        seconds, self._kept = now - self._kept, now
        traffic = self._traffic.rates({index: [one.pid for one in found] for index, found in below.items()})
        for index, found in below.items():
            cpu = sum(process.cpu_seconds for process in found)
            busy = max(0.0, cpu - self._cpu.get(index, 0.0)) / seconds
            self._cpu[index] = cpu
            mine = self._gpus_of(index)
            gpus = self._gpus.busy(mine) if mine else Busy()
            waits = self._waits.pop(index, [])
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


class Busy(NamedTuple):
    """How many GPUs are busy (two at half load are one), and the memory that is taken on them."""

    gpus: float = 0.0
    memory_bytes: int = 0


class Gpus:
    """The driver, asked when first needed."""

    def __init__(self) -> None:
        self._driver: Any = None
        self._asked = False

    def busy(self, ids: Iterable[str]) -> Busy:
        """Return what these GPUs do now; names are those of CUDA_VISIBLE_DEVICES, numbers or UUIDs."""
        driver = self._found()
        if driver is None:
            return Busy()
        found = [_one(driver, name) for name in ids]
        return Busy(round(sum(one.gpus for one in found), 3), sum(one.memory_bytes for one in found))

    def _found(self) -> Any:
        if not self._asked:
            self._asked = True
            try:
                import pynvml

                pynvml.nvmlInit()
                self._driver = pynvml
            except Exception:  # no library, no driver, no right: whatever it is, a job goes on without it
                self._driver = None
        return self._driver


def _one(driver: Any, name: str) -> Busy:
    try:
        by_number = name.isdecimal()
        handle = (
            driver.nvmlDeviceGetHandleByIndex(int(name))
            if by_number
            else driver.nvmlDeviceGetHandleByUUID(name)
        )
        share = driver.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        return Busy(share, int(driver.nvmlDeviceGetMemoryInfo(handle).used))
    except driver.NVMLError:  # a GPU that fell off the bus, a MIG slice without rates
        return Busy()
