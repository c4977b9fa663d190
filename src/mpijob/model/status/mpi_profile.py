"""Profiles of MPI calls: time, traffic between ranks, and waiting.

`observation/metrics/mpi_profile_file` reads each rank's part, `observation/metrics/mpi_profile` combines them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class CallKind(StrEnum):
    """What a call of MPI is for; the order is that of `mpi_profile.c`."""

    SETUP = "setup"
    POINT_TO_POINT = "point-to-point"
    WAITING = "waiting"
    COLLECTIVE = "collective"
    ONE_SIDED = "one-sided"
    FILES = "files"
    COMMUNICATORS = "communicators"


class MpiCall(msgspec.Struct, frozen=True):
    """All calls of one function by one rank; `size` is the number of bytes passed to be sent or written."""

    name: str
    kind: CallKind
    calls: int
    seconds: float
    size: int = 0


class MpiPeer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Traffic of a rank with one other rank; `got` was fetched from it, all else was sent to it.

    `waited_seconds` is the time in calls that wait for this rank. `bulk` are messages of 64 KiB and more in blocking
    calls, `best_bandwidth` is the fastest of them in bytes per second.
    """

    rank: int
    size: int = 0
    messages: int = 0
    collective_size: int = 0
    collective_messages: int = 0
    put_size: int = 0
    puts: int = 0
    got_size: int = 0
    gets: int = 0
    waited_seconds: float = 0.0
    bulk_size: int = 0
    bulk_seconds: float = 0.0
    best_bandwidth: float = 0.0


class RankProfile(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """MPI profile of one rank since `started`.

    `seconds` is the measured time (without MPI_Init, MPI_Finalize and time paused with MPI_Pcontrol), `mpi_seconds`
    the time in MPI, of all threads together. `step` is the step of a script, `world` the number of ranks; `spawned`
    ranks belong to a world that the job's ranks started. `calling` is the current MPI function, for
    `calling_seconds`, with `calling_peer` if known. `latency_seconds` is the mean time of blocking messages of at
    most 1 KiB, including waits.
    """

    rank: int
    world: int
    step: int | None = None
    again: int = 1
    spawned: bool = False
    worker: int | None = None
    started: float = 0.0
    seconds: float = 0.0
    mpi_seconds: float = 0.0
    setup_seconds: float = 0.0
    calls: tuple[MpiCall, ...] = ()
    peers: tuple[MpiPeer, ...] = ()
    calling: str = ""
    calling_peer: int | None = None
    calling_seconds: float = 0.0
    latency_seconds: float | None = None
    unattributed_size: int = 0
    threads: bool = False
    ended: bool = False
    aborted: bool = False
    library: str = ""

    @property
    def share(self) -> float:
        """The share of its time that the rank spent in MPI; more than 1 where several threads were in it at once."""
        return self.mpi_seconds / self.seconds if self.seconds > 0 else 0.0

    def seconds_in(self, *kinds: CallKind) -> float:
        """Return the time in calls of some kinds."""
        return sum(call.seconds for call in self.calls if call.kind in kinds)

    @property
    def sent(self) -> int:
        """Bytes sent to all others, by the program's own calls and in collective ones."""
        return sum(peer.size + peer.collective_size + peer.put_size for peer in self.peers)

    @property
    def messages(self) -> int:
        """Messages sent to all others."""
        return sum(peer.messages + peer.collective_messages + peer.puts for peer in self.peers)


class RankProfiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the ranks of a job's newest attempt counted; `lacks` say where nothing could be."""

    ranks: tuple[RankProfile, ...] = ()
    lacks: tuple[str, ...] = ()


class RankPair(msgspec.Struct, frozen=True, omit_defaults=True):
    """Data that one rank sent to another; `bandwidth` is that of large messages, including waits.

    `waited_seconds` is the time of the sender in calls that wait for the receiver.
    """

    sender: int
    receiver: int
    size: int = 0
    messages: int = 0
    bandwidth: float | None = None
    best_bandwidth: float | None = None
    waited_seconds: float = 0.0


class MpiProfile(msgspec.Struct, frozen=True, kw_only=True):
    """MPI profile of all ranks.

    `calls` are sorted by time, `pairs` by size. `remarks` list findings, `lacks` what could not be measured.
    """

    ranks: tuple[RankProfile, ...] = ()
    calls: tuple[MpiCall, ...] = ()
    pairs: tuple[RankPair, ...] = ()
    share: float | None = None
    slowest: RankPair | None = None
    remarks: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
