"""Reading a job's curves: its lines, found by what they may hold, of jobs that are there or remembered."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpijob.backends.capabilities import SupportsProgress
from mpijob.backends.streams import close
from mpijob.client.history.fallback import remembering
from mpijob.client.observe import one_attempt
from mpijob.errors import NotFound
from mpijob.model import LogQuery, Phase
from mpijob.model.status.records import PROGRAM
from mpijob.observation.metrics import training

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef, JobState
    from mpijob.observation.metrics.training import Curves, Point
    from mpijob.settings import Settings

_MOST_POINTS = 200_000


def read(
    backend: Backend,
    ref: JobRef,
    settings: Settings,
    patterns: Sequence[str] = (),
    *,
    rank: int | None = None,
    points: int = training.POINTS,
    since: float | None = None,
    tail: int | None = None,
    attempt: int | None = None,
) -> Curves:
    """Return the curves of a job; patterns of the call come before those of the settings.

    Numbers leave here and no lines: this is no look into a log that an audit would tell.
    """
    state, told = points_of(
        backend, ref, settings, patterns, rank=rank, since=since, tail=tail, attempt=attempt
    )
    running = state.phase in (Phase.RUNNING, Phase.INITIALIZING)
    found = training.curves(told, most=points, rank=rank, now=time.time() if running else None)
    known = backend.capability(SupportsProgress)
    beyond = None
    if known is not None and rank is None and attempt is None and not state.deleted:
        with contextlib.suppress(NotFound):  # it went meanwhile
            beyond = known.progress(state.ref)
    return found if beyond is None else training.completed(found, beyond)


def points_of(
    backend: Backend,
    ref: JobRef,
    settings: Settings,
    patterns: Sequence[str] = (),
    *,
    rank: int | None = None,
    since: float | None = None,
    tail: int | None = None,
    attempt: int | None = None,
) -> tuple[JobState, list[Point]]:
    """Return where a job stands and what its lines told, rank by rank."""
    reads = one_attempt.reading(remembering(backend), attempt)
    own = (*patterns, *settings.metric_patterns)
    find = training.reader(own)
    ranks = () if rank is None else (rank,)
    search = (
        "" if own or tail is not None else training.LOOKED_FOR
    )  # the last lines are read without a search
    query = LogQuery(regex=search, roles=PROGRAM, ranks=ranks, since=since, tail=tail)
    state = reads.get(ref)
    stream = reads.logs(state.ref, query)
    told: list[Point] = []
    try:
        for line in stream:
            told += training.points((line,), find)
            if len(told) >= _MOST_POINTS:
                del told[::2]  # a year of steps fits into memory, and no screen shows more
    finally:
        close(stream)
    return state, told
