"""GPU use: what the driver tells becomes samples; a driver that is not there, or fails, ends nothing.

The real driver (an H200, idle and busy) was asked by hand: this machine has none.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mpijob.backends.local.supervisor.usage import Gpus, GpuUsage


class Driver(SimpleNamespace):
    """NVML's few calls, as its Python binding has them."""

    class NVMLError(Exception):
        """What it raises."""

    def nvmlInit(self) -> None:
        """Nothing has to be prepared."""

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        if number > 1:
            raise self.NVMLError("no such device")
        return number

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=(50, 100)[handle])

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=1 << 30)


@pytest.mark.req("FR-022")
def test_the_load_of_a_workers_gpus_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", cast("Any", Driver()))
    gpus = Gpus()
    assert gpus.usage(("0", "1")) == GpuUsage(1.5, 2 << 30)
    assert gpus.usage(("GPU-abc",)) == GpuUsage(0.5, 1 << 30)
    assert gpus.usage(("7",)) == GpuUsage()


def test_a_machine_without_a_driver_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpus().usage(("0",)) == GpuUsage()
