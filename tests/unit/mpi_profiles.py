"""Builds the file in which a rank counts its MPI calls, as `backends/profiler/mpi_profile.c` lays it out."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

RATE = 1_000_000  # ticks a second: one is a microsecond
BEGAN = 1_000_000.0  # seconds since the epoch
FUNCTIONS = (("MPI_Init", 0), ("MPI_Send", 1), ("MPI_Wait", 2), ("MPI_Allreduce", 3))
PEER = (
    "size",
    "messages",
    "collective",
    "collectives",
    "put",
    "puts",
    "got",
    "gets",
    "waited",
    "bulk",
    "ticks",
    "best",
)


def a_file(
    rank: int = 0,
    world: int = 2,
    *,
    calls: Mapping[str, tuple[int, int, int]] | None = None,
    flows: Mapping[int, Mapping[str, int]] | None = None,
    shared: Sequence[tuple[int, int, Sequence[int]]] = (),
    seconds: float = 10.0,
    ended: bool = True,
    **fields: int,
) -> bytes:
    """Return a profile: `calls` by name (how many, ticks, bytes), `flows` by receiver, `shared` with its members."""
    members = [one for _, _, those in shared for one in those]
    header = {
        "version": 1, "header_size": 296, "rank": rank, "world": world, "functions": len(FUNCTIONS),
        "groups": len(shared), "peers": world, "members": len(members), "rate": RATE, "started_ns": int(BEGAN * 1e9),
        "started": 0, "last": int(seconds * RATE), "ended": int(seconds * RATE) if ended else 0, "paused": 0,
        "paused_since": 0, "threads": 0, "family": 0, "current": 0, "current_peer": -1, "current_since": 0,
        "small_calls": 0, "small_ticks": 0, "unattributed": 0, "pid": 7, "spawned": 0, "aborted": 0,
    } | fields  # fmt: skip
    parts = [
        struct.pack("<8s2I2I4I7Q4iQ2QQ3Q128s", b"MPIJOBMP", *header.values(), b"Some MPI 1.0\nbuilt then\0")
    ]
    for name, kind in FUNCTIONS:
        count, ticks, size = (calls or {}).get(name, (0, 0, 0))
        parts.append(struct.pack("<32s4Q", name.encode(), kind, count, ticks, size))
    first = 0
    for size, messages, those in shared:
        parts.append(struct.pack("<2Q4I", size, messages, len(those) or world, first, not those, 0))
        first += len(those)
    for number in range(world):
        of = (flows or {}).get(number, {})
        parts.append(struct.pack("<12Q", *(of.get(word, 0) for word in PEER)))
    return b"".join(parts) + struct.pack(f"<{len(members)}i", *members)
