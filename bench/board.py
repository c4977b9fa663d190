"""A board full of jobs, for the measurements of the page and its server."""

from __future__ import annotations

import msgspec

from mpijob import MPIJob
from mpijob.api.live import rows
from mpijob.api.request_context import AppState
from mpijob.model import Phase

TEAMS = 20


async def filled(room: AppState, count: int) -> None:
    """Put so many jobs, of twenty teams and in every phase, on the board."""
    state = (await room.client.submit(MPIJob(name="seed", workers=4, command=("true",)))).last
    row = msgspec.structs.replace(rows.row(state), why="Rank 1 on worker 1 exited with code 7.")
    phases = tuple(Phase)
    made = [
        msgspec.structs.replace(
            row, uid=f"u{n:06}", name=f"job-{n}", namespace=f"team-{n % TEAMS}", owner=f"user-{n % 50}",
            phase=phases[n % len(phases)], created=row.created + n,
        )
        for n in range(count)
    ]  # fmt: skip
    room.job_index._put(*made)
