"""Network traffic of each worker, from the kernel's byte counters of its TCP connections (sock_diag(7)).

Workers of one machine share its interfaces, whose counters do not tell them apart. Messages through shared memory are
no traffic.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

_SOCK_DIAG, _BY_FAMILY, _DONE, _ERROR = 4, 20, 3, 2
# NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_DUMP = 0x301
_TCP, _INFO, _ALL_STATES = 6, 2, 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
# The size of `struct inet_diag_msg`, whose last field is the inode.
_MESSAGE_BYTES = 72
# Of `tcpi_bytes_acked` in `struct tcp_info`; `tcpi_bytes_received` follows. Both are there since Linux 4.1.
_ACKED_OFFSET = 120
# With more, listing their open files costs too much time.
_MAX_PROCESSES = 500


class Traffic:
    """Computes rates from the counters of connections; it uses one percent of a core at most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[int, int] = {}
        self._rates: dict[int, float] = {}
        self._measured, self._next = clock(), 0.0

    def rates(self, workers: Mapping[int, Iterable[int]]) -> dict[int, float]:
        """Return the bytes a second that each worker (index to pids) sends and receives; {} where it is unknown.

        Between two measurements, the rates of the last one.
        """
        pids_of = {index: [*pids] for index, pids in workers.items()}
        start = self._clock()
        if start < self._next or sum(map(len, pids_of.values())) > _MAX_PROCESSES:
            return self._rates
        try:
            added = self._added(pids_of)
        # The kernel, or a sandbox, does not have sock_diag, and will not have it later.
        except (OSError, struct.error):
            self._next = math.inf
            self._rates = {}
            return {}
        seconds = max(start - self._measured, 1e-3)
        self._rates = {index: size / seconds for index, size in added.items()}
        # The more a measurement takes, the longer the pause.
        self._measured, self._next = start, start + 100 * (self._clock() - start)
        return self._rates

    def _added(self, pids_of: Mapping[int, Iterable[int]]) -> dict[int, int]:
        owners = {inode: index for index, pids in pids_of.items() for pid in pids for inode in _sockets(pid)}
        now = {inode: total for inode, total in connections() if inode in owners} if owners else {}
        added = Counter[int]()
        for inode, total in now.items():
            # The inode of a closed socket may be used again, with a smaller counter.
            added[owners[inode]] += max(0, total - self._known.get(inode, 0))
        self._known = now
        return added


def _sockets(pid: int) -> Iterator[int]:
    """Yield the inodes of a process's sockets."""
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{directory}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield int(target[8:-1])


def connections() -> Iterator[tuple[int, int]]:
    """Yield every TCP connection of this machine: its inode, and the bytes sent and received."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as netlink:
            netlink.settimeout(2.0)
            body = struct.pack("=BBBBI48x", family, _TCP, 1 << (_INFO - 1), 0, _ALL_STATES)
            netlink.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
            yield from _read_connections(netlink)


def _read_connections(netlink: socket.socket) -> Iterator[tuple[int, int]]:
    while True:
        data = netlink.recv(1 << 18)
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, *_ = _HEADER.unpack_from(data, at)
            if kind == _DONE:
                return
            if kind == _ERROR or length < _HEADER.size:
                raise OSError("the kernel does not report its connections")
            yield from _parse_connection(data[at + _HEADER.size : at + length])
            # Netlink aligns messages and attributes to four bytes.
            at += (length + 3) & ~3


def _parse_connection(message: bytes) -> Iterator[tuple[int, int]]:
    (inode,) = struct.unpack_from("=I", message, _MESSAGE_BYTES - 4)
    at = _MESSAGE_BYTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        # Older kernels have a shorter `tcp_info`, without the counters.
        if kind == _INFO and length - 4 >= _ACKED_OFFSET + 16:
            acked, received = struct.unpack_from("=QQ", message, at + 4 + _ACKED_OFFSET)
            yield inode, acked + received
        if length < 4:
            return
        at += (length + 3) & ~3
