"""Read training metrics of an existing or deleted job, from its log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpijob.backends.capabilities import SupportsProgress
from mpijob.backends.streams import close
from mpijob.client.history.fallback import with_history
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
    """Return the metrics of a job; patterns of the call come before those of the settings."""
    # Numbers are returned, and not log lines, so this is not audited as a read of the log.
    state, points_found = points_of(
        backend, ref, settings, patterns, rank=rank, since=since, tail=tail, attempt=attempt
    )
    running = state.phase in (Phase.RUNNING, Phase.INITIALIZING)
    found = training.curves(points_found, most=points, rank=rank, now=time.time() if running else None)
    known = backend.capability(SupportsProgress)
    beyond = None
    if known is not None and rank is None and attempt is None and not state.deleted:
        # Deleted meanwhile.
        with contextlib.suppress(NotFound):
            beyond = known.progress(state.ref)
    return found if beyond is None else training.complete(found, beyond)


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
    """Return the state of a job and its metrics, in the order of the log."""
    reads = one_attempt.reading(with_history(backend), attempt)
    own = (*patterns, *settings.metric_patterns)
    find = training.reader(own)
    ranks = () if rank is None else (rank,)
    # A tail is read as a whole: a search would continue through the whole log.
    search = "" if own or tail is not None else training.PREFILTER
    query = LogQuery(regex=search, roles=PROGRAM, ranks=ranks, since=since, tail=tail)
    state = reads.get(ref)
    stream = reads.logs(state.ref, query)
    points_found: list[Point] = []
    try:
        for line in stream:
            points_found += training.points((line,), find)
            if len(points_found) >= _MOST_POINTS:
                # Every other point is dropped: a year of steps fits into memory, and no screen shows more.
                del points_found[::2]
    finally:
        close(stream)
    return state, points_found
