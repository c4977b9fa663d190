"""Reads the file with one rank's counted MPI calls (`backends/profiler/mpi_profile.c` defines its layout).

The rank writes to it while it is read, and a program could write anything to it: offsets are checked, numbers
are not.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from mpijob.model.status.mpi_profile import CallKind, MpiCall, MpiPeer, RankProfile

NAME = re.compile(
    r"(?:step-(?P<step>\d{1,6})-)?(?P<kind>rank|spawned)-(?P<number>\d{1,9})(?:\.(?P<again>\d{1,4}))?\.mpiprofile"
)
MAGIC, VERSION = b"MPIJOBMP", 1
# The size of a file for half a million ranks.
LARGEST = 64 << 20
_HEADER = struct.Struct("<8s2I2I4I7Q4iQ2QQ3Q128s")
_FUNCTION = struct.Struct("<32s4Q")
_GROUP = struct.Struct("<2Q4I")
_PEER = struct.Struct("<12Q")
_KINDS = tuple(CallKind)


class BadProfile(ValueError):
    """The bytes are not a valid profile."""


class _Header(NamedTuple):
    magic: bytes
    version: int
    header_size: int
    rank: int
    world: int
    functions: int
    groups: int
    peers: int
    members: int
    rate: int
    started_ns: int
    started: int
    last: int
    ended: int
    paused: int
    paused_since: int
    threads: int
    family: int
    current: int
    current_peer: int
    current_since: int
    small_calls: int
    small_ticks: int
    unattributed: int
    pid: int
    spawned: int
    aborted: int
    library: bytes


def read(name: str, data: bytes, until: float) -> RankProfile:
    """Return the profile in a file; the rank ran until `until` or still runs. Raise BadProfile if the file is
    invalid.
    """
    found = NAME.fullmatch(name)
    if found is None:
        raise BadProfile(f"{name} is not a profile name")
    header = _header(data)
    clock = _Clock(header, until)
    calls = tuple(_calls(header, data, clock))
    known = 0 <= header.current_peer < header.world
    setup = sum(call.seconds for call in calls if call.kind is CallKind.SETUP)
    return RankProfile(
        rank=header.rank,
        world=header.world,
        step=int(found["step"]) if found["step"] else None,
        again=int(found["again"] or 1),
        spawned=bool(header.spawned),
        started=header.started_ns / 1e9,
        seconds=clock.covered_seconds,
        mpi_seconds=sum(call.seconds for call in calls) - setup,
        setup_seconds=setup,
        calls=calls,
        peers=tuple(_peers(header, data, clock)),
        calling=_current_function(header, data),
        calling_peer=header.current_peer if _current_function(header, data) and known else None,
        calling_seconds=clock.seconds(clock.now - header.current_since)
        if _current_function(header, data)
        else 0.0,
        latency_seconds=clock.seconds(header.small_ticks) / header.small_calls
        if header.small_calls
        else None,
        unattributed_size=header.unattributed,
        threads=bool(header.threads),
        ended=bool(header.ended),
        aborted=bool(header.aborted),
        library=" ".join(_text(header.library).partition("\n")[0].split()),
    )


def _header(data: bytes) -> _Header:
    if len(data) < _HEADER.size or len(data) > LARGEST:
        raise BadProfile(f"{len(data)} bytes are not a profile")
    header = _Header(*_HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise BadProfile("it is still empty, or not a profile")
    if header.version != VERSION or header.header_size != _HEADER.size:
        raise BadProfile(f"version {header.version} is not supported, only {VERSION}")
    if header.rank >= max(1, header.world) or header.peers != header.world or header.rate == 0:
        raise BadProfile(f"rank {header.rank} of {header.world} ranks with {header.peers} peers")
    if _offsets(header)[-1] > len(data):
        raise BadProfile("it is truncated")
    return header


def _offsets(header: _Header) -> tuple[int, int, int, int, int]:
    """Return the offsets of the functions, groups, peers and members, and their end."""
    functions = header.header_size
    groups = functions + header.functions * _FUNCTION.size
    peers = groups + header.groups * _GROUP.size
    members = peers + header.peers * _PEER.size
    return functions, groups, peers, members, members + 4 * header.members


class _Clock:
    """Converts the rank's clock ticks to seconds, and has the time that the profile covers."""

    def __init__(self, header: _Header, until: float) -> None:
        self._rate = header.rate
        elapsed = max(0, int((until - header.started_ns / 1e9) * header.rate))
        self.now = header.ended or max(header.last, header.started + elapsed)
        pause = header.paused + (max(0, self.now - header.paused_since) if header.paused_since else 0)
        self.covered_seconds = self.seconds(self.now - header.started - pause)

    def seconds(self, ticks: int) -> float:
        return max(0.0, ticks / self._rate)


def _calls(header: _Header, data: bytes, clock: _Clock) -> Iterator[MpiCall]:
    # The current call counts up to now.
    at = _offsets(header)[0]
    for number, row in enumerate(_FUNCTION.iter_unpack(data[at : at + header.functions * _FUNCTION.size])):
        name, kind, calls, ticks, size = row
        is_current = number + 1 == header.current and not header.ended
        if calls or is_current:
            seconds = clock.seconds(ticks + (clock.now - header.current_since if is_current else 0))
            yield MpiCall(_text(name), _KINDS[min(kind, len(_KINDS) - 1)], calls + is_current, seconds, size)


def _current_function(header: _Header, data: bytes) -> str:
    """Return the function that the rank is in, "" if it is in none."""
    if not 0 < header.current <= header.functions or header.ended:
        return ""
    row = _FUNCTION.unpack_from(data, _offsets(header)[0] + (header.current - 1) * _FUNCTION.size)
    return _text(row[0])


def _peers(header: _Header, data: bytes, clock: _Clock) -> Iterator[MpiPeer]:
    # Messages to a whole communicator are divided among its members.
    at = _offsets(header)[2]
    shared = _shared(header, data)
    for rank, row in enumerate(_PEER.iter_unpack(data[at : at + header.peers * _PEER.size])):
        size, messages, of_all, calls, put, puts, got, gets, waited, bulk, ticks, best = row
        more, more_calls = shared.get(rank, (0, 0))
        if any(row) or more_calls:
            yield MpiPeer(
                rank, size, messages, of_all + more, calls + more_calls, put, puts, got, gets,
                clock.seconds(waited), bulk, clock.seconds(ticks), (1 << 20) / clock.seconds(best) if best else 0.0,
            )  # fmt: skip


def _shared(header: _Header, data: bytes) -> dict[int, tuple[int, int]]:
    _, begin, end, members, _ = _offsets(header)
    found: dict[int, tuple[int, int]] = {}
    for size, messages, count, first, is_world, _ in _GROUP.iter_unpack(data[begin:end]):
        if not messages or count > header.world:
            continue
        for rank in _members(header, data, members, count, first) if not is_world else range(header.world):
            if rank != header.rank and 0 <= rank < header.world:
                before = found.get(rank, (0, 0))
                found[rank] = (before[0] + size, before[1] + messages)
    return found


def _members(header: _Header, data: bytes, begin: int, count: int, first: int) -> Sequence[int]:
    if first + count > header.members:
        return ()
    return struct.unpack_from(f"<{count}i", data, begin + 4 * first)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace").strip()


def to_json(profile: RankProfile) -> bytes:
    """Return a profile as JSON, as it is stored."""
    return msgspec.json.encode(profile)
