"""How busy GPUs are, as the driver tells it (NVML, extra `gpu`); nothing is told where it is not installed.

A GPU is one job's alone here, so what the device does is what the worker's ranks do with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


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
