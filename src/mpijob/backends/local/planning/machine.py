"""This machine: cores, memory, GPUs, fabrics, and identities of processes."""

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
    """Return what jobs may use: this machine's cores, memory and GPUs, or what the settings say."""
    cores = settings.cores if settings.cores is not None else float(len(os.sched_getaffinity(0)))
    memory = int(quantity.parse(settings.memory)) if settings.memory else _memory_bytes()
    return Amounts(cores, memory, len(gpu_ids(settings)))


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # In a container, its limit (cgroup v2 or v1; "max" is no number).
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(_read_text(path)))
    return total


def gpu_ids(settings: Settings) -> tuple[str, ...]:
    """Return the GPUs that jobs may use, as numbers for CUDA_VISIBLE_DEVICES."""
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
    """Return the fast networks of this machine, named as resources of Kubernetes device plugins."""
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
    return os.uname().nodename


# -- identities of processes --------------------------------------------------------------------------
# The kernel uses pids again, so a stored pid alone may be another process. Start times count from the boot.
def process_identity(pid: int) -> str:
    """Return `pid:start:boot` of a living process, "" for one that is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # After the last parenthesis, because the program's name may contain some.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    if fields[0] in (b"Z", b"X"):
        return ""
    return f"{pid}:{int(fields[19])}:{_boot_id()}"


def is_alive(identity: str) -> bool:
    """Return whether the process of an identity still runs; False for ""."""
    pid = identity.partition(":")[0]
    return pid.isdigit() and process_identity(int(pid)) == identity


def pid_of(identity: str) -> int:
    return int(identity.partition(":")[0])


@functools.cache
def _boot_id() -> str:
    try:
        return _read_text("/proc/sys/kernel/random/boot_id").strip()[:8]
    except OSError:
        return ""


def _read_text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
