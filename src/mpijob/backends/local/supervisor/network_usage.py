"""What each worker sends and receives: the kernel's own counters of the TCP connections that its processes hold.

All workers of a machine share its network, so an interface's counters tell nothing of one of them. The kernel is asked
for every connection (sock_diag), and /proc says whose they are. What goes through shared memory is no traffic.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

_SOCK_DIAG, _BY_FAMILY, _DONE, _ERROR = 4, 20, 3, 2
_DUMP = 0x301  # a request for all of them
_TCP, _INFO, _ALL_STATES = 6, 2, 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_MESSAGE_BYTES = 72  # bytes of inet_diag_msg; its inode is the last field
_ACKED_OFFSET = 120  # bytes into tcp_info: bytes_acked, bytes_received
_MAX_PROCESSES = 500  # beyond, looking through their files would cost more than the number is worth


class Traffic:
    """Remembers how far each connection was, and tells what was added; it takes a hundredth of the time at most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[int, int] = {}
        self._rates: dict[int, float] = {}
        self._measured, self._next = clock(), 0.0

    def rates(self, workers: Mapping[int, Iterable[int]]) -> dict[int, float]:
        """Return the bytes that each worker (index to pids) sends and receives a second."""
        held = {index: [*pids] for index, pids in workers.items()}
        begun = self._clock()
        if begun < self._next or sum(map(len, held.values())) > _MAX_PROCESSES:
            return self._rates
        try:
            added = self._added(held)
        except (OSError, struct.error):
            self._next = math.inf  # a kernel, or a sandbox, that does not tell
            self._rates = {}
            return {}
        seconds = max(begun - self._measured, 1e-3)
        self._rates = {index: size / seconds for index, size in added.items()}
        self._measured, self._next = begun, begun + 100 * (self._clock() - begun)
        return self._rates

    def _added(self, held: Mapping[int, Iterable[int]]) -> dict[int, int]:
        owners = {inode: index for index, pids in held.items() for pid in pids for inode in _sockets(pid)}
        now = {inode: total for inode, total in connections() if inode in owners} if owners else {}
        found: dict[int, int] = {}
        for inode, total in now.items():
            added = total - self._known.get(inode, 0)
            found[owners[inode]] = found.get(owners[inode], 0) + max(0, added)
        self._known = now
        return found


def _sockets(pid: int) -> Iterator[int]:
    """Yield the inodes of a process's sockets."""
    place = f"/proc/{pid}/fd"
    try:
        names = os.listdir(place)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{place}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield int(target[8:-1])


def connections() -> Iterator[tuple[int, int]]:
    """Yield the inode of every TCP connection of this machine, and the bytes that went over it both ways."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as line:
            line.settimeout(2.0)
            body = struct.pack("=BBBBI48x", family, _TCP, 1 << (_INFO - 1), 0, _ALL_STATES)
            line.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
            yield from _read_connections(line)


def _read_connections(line: socket.socket) -> Iterator[tuple[int, int]]:
    while True:
        data = line.recv(1 << 18)
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, *_ = _HEADER.unpack_from(data, at)
            if kind == _DONE:
                return
            if kind == _ERROR or length < _HEADER.size:
                raise OSError("the kernel does not report its connections")
            yield from _parse_connection(data[at + _HEADER.size : at + length])
            at += (length + 3) & ~3


def _parse_connection(message: bytes) -> Iterator[tuple[int, int]]:
    (inode,) = struct.unpack_from("=I", message, _MESSAGE_BYTES - 4)
    at = _MESSAGE_BYTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == _INFO and length - 4 >= _ACKED_OFFSET + 16:
            acked, received = struct.unpack_from("=QQ", message, at + 4 + _ACKED_OFFSET)
            yield inode, acked + received
        if length < 4:
            return
        at += (length + 3) & ~3
