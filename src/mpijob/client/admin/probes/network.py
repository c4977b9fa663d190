"""Runs in every rank of a probe: measures latency and bandwidth of each pair of ranks over MPI.

It needs only Python and the image's own MPI library: mpi4py is used if it is installed, otherwise the library
is called directly. While a pair is measured, all others wait; the lower rank prints the result.
"""

from __future__ import annotations

import ctypes
import glob
import os
import socket
import sys
import time
from typing import Any

SMALL, LARGE = 1, 1 << 20
PINGS, BULKS = 40, 6


class Direct:
    """The few MPI calls that are needed, through the library's binary interface."""

    def __init__(self) -> None:
        self.lib = self._load()
        self.world: Any
        self.byte: Any
        if hasattr(self.lib, "ompi_mpi_comm_world"):
            self.world = ctypes.c_void_p(
                ctypes.addressof(ctypes.c_char.in_dll(self.lib, "ompi_mpi_comm_world"))
            )
            self.byte = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self.lib, "ompi_mpi_byte")))
            self.ignore = ctypes.c_void_p(0)
        # MPICH and libraries with its ABI: handles are these integers of mpi.h; Open MPI has pointers.
        else:
            self.world, self.byte = ctypes.c_int(0x44000000), ctypes.c_int(0x4C00010D)
            self.ignore = ctypes.c_void_p(1)
        self.lib.MPI_Init(None, None)
        self.rank, self.size = self._number("MPI_Comm_rank"), self._number("MPI_Comm_size")

    @staticmethod
    def _load() -> Any:
        names = ["libmpi.so.40", "libmpi.so.12", "libmpi.so", "libmpich.so.12", "libmpi.so.0"]
        launcher = os.path.dirname(os.path.realpath(_which("mpirun") or _which("mpiexec") or "/"))
        near = [glob.glob(os.path.join(launcher, "..", "lib*", "**", name), recursive=True) for name in names]
        for name in [path for found in near for path in found] + names:
            try:
                return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
        raise SystemExit("network probe: no MPI library found in this image")

    def _number(self, call: str) -> int:
        value = ctypes.c_int()
        getattr(self.lib, call)(self.world, ctypes.byref(value))
        return value.value

    def barrier(self) -> None:
        self.lib.MPI_Barrier(self.world)

    def send(self, buffer: Any, count: int, other: int) -> None:
        self.lib.MPI_Send(buffer, count, self.byte, other, 7, self.world)

    def receive(self, buffer: Any, count: int, other: int) -> None:
        self.lib.MPI_Recv(buffer, count, self.byte, other, 7, self.world, self.ignore)

    def buffer(self, count: int) -> Any:
        return ctypes.create_string_buffer(count)

    def end(self) -> None:
        self.lib.MPI_Finalize()


class ByMpi4py:
    """The same calls through mpi4py."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size

    def barrier(self) -> None:
        self.comm.Barrier()

    def send(self, buffer: Any, count: int, other: int) -> None:
        self.comm.Send([buffer, count, self.mpi.BYTE], other, 7)

    def receive(self, buffer: Any, count: int, other: int) -> None:
        self.comm.Recv([buffer, count, self.mpi.BYTE], other, 7)

    def buffer(self, count: int) -> Any:
        return bytearray(count)

    def end(self) -> None:
        pass


def _which(name: str) -> str:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    return ""


def connect() -> Any:
    try:
        return ByMpi4py()
    except ImportError:
        return Direct()


def measured(world: Any, other: int, count: int, times: int) -> list[float]:
    """Return the sorted seconds of round trips; the higher rank of a pair echoes."""
    buffer, taken = world.buffer(count), []
    for _ in range(times):
        begun = time.perf_counter()
        if world.rank < other:
            world.send(buffer, count, other)
            world.receive(buffer, count, other)
        else:
            world.receive(buffer, count, other)
            world.send(buffer, count, other)
        taken.append(time.perf_counter() - begun)
    # The first one includes the setup of the connection.
    return sorted(taken[1:])


def main() -> None:
    # For tests, which make a link slow.
    delay = float(os.environ.get("PROBE_SLOW", "0"))
    slow = os.environ.get("PROBE_SLOW_RANK", "")
    world = connect()
    node = os.environ.get("MPIJOB_NODE", "")
    say("host", world.rank, socket.gethostname(), node or "-")
    for low in range(world.size):
        for high in range(low + 1, world.size):
            world.barrier()
            if world.rank not in (low, high):
                continue
            other = high if world.rank == low else low
            pings, bulks = measured(world, other, SMALL, PINGS), measured(world, other, LARGE, BULKS)
            extra = delay if str(low) == slow or str(high) == slow else 0.0
            if world.rank == low:
                # The minimum: longer times include other processes on the machine or the network.
                half, whole = (
                    pings[0] / 2 + extra,
                    bulks[0] / 2 + extra,
                )
                say("pair", low, high, round(half * 1e6, 2), round(LARGE / whole / 1e6, 2))
    world.barrier()
    world.end()


def say(*words: object) -> None:
    sys.stdout.write("mpijob-network " + " ".join(map(str, words)) + "\n")
    sys.stdout.flush()


main()
