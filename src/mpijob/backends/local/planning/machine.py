"""What this machine has: cores, memory, GPUs; and whether a process that we once knew still lives."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

from mpijob.model import Amounts
from mpijob.model.spec import quantity
from mpijob.model.spec.enums import FABRICS

if TYPE_CHECKING:
    from mpijob.settings import Settings


def capacity(settings: Settings) -> Amounts:
    """Return what jobs may use here: what the machine has, or less where the settings say so."""
    cores = settings.cores if settings.cores is not None else float(len(os.sched_getaffinity(0)))
    memory = int(quantity.parse(settings.memory)) if settings.memory else _memory_bytes()
    return Amounts(cores, memory, len(gpu_ids(settings)))


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(_read_text(path)))
    return total


def gpu_ids(settings: Settings) -> tuple[str, ...]:
    """Return the names of the GPUs that jobs may use, as CUDA_VISIBLE_DEVICES takes them."""
    if settings.gpus is not None:
        return tuple(str(index) for index in range(settings.gpus))
    return _nvidia_gpus()


@functools.cache
def _nvidia_gpus() -> tuple[str, ...]:
    try:
        count = len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return ()
    return tuple(str(index) for index in range(count))


def fabrics(root: str = "/sys/class/infiniband") -> frozenset[str]:
    """Return the fast networks of this machine, under the names that a cluster's device plugins give them."""
    found = set[str]()
    for device in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        if device.startswith("efa"):
            found.add(FABRICS["efa"])
            continue
        kind = ""
        with contextlib.suppress(OSError):
            kind = _read_text(f"{root}/{device}/ports/1/link_layer").strip()
        found.add(FABRICS["infiniband" if kind == "InfiniBand" else "roce"])
    return frozenset(found)


def node_name() -> str:
    """Return this machine's name."""
    return os.uname().nodename


# -- processes that outlive their parents are known by pid and start time: pids are used again --------
def process_identity(pid: int) -> str:
    """Return `pid:start:boot` for a living process, "" when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    if fields[0] in (b"Z", b"X"):
        return ""
    return f"{pid}:{int(fields[19])}:{_boot_id()}"


def is_alive(known: str) -> bool:
    """Return whether the very process that `identity` once described still runs."""
    pid = known.partition(":")[0]
    return pid.isdigit() and process_identity(int(pid)) == known


def pid_of(known: str) -> int:
    """Return the pid in an identity."""
    return int(known.partition(":")[0])


@functools.cache
def _boot_id() -> str:
    try:
        return _read_text("/proc/sys/kernel/random/boot_id").strip()[:8]
    except OSError:
        return ""


def _read_text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
