"""How long a job will wait here: the queue played out over what earlier runs of the same commands took.

What other commands took says nothing about one that runs for the first time: then there is no estimate, and where
every job that must end first has a deadline, a bound.
"""

from __future__ import annotations

import msgspec

from mpijob import codec
from mpijob.backends.local.queue import scheduler
from mpijob.backends.local.queue.scheduler import Clock
from mpijob.backends.local.queue.store import Store, decode_state
from mpijob.model import Amounts, MPIJob
from mpijob.observation.state import queue_wait

_HOLDING = "SELECT plan, state, cores, memory, gpus FROM jobs JOIN plans USING (uid) WHERE holds=1"
_AHEAD = (
    "SELECT plan, cores, memory, gpus FROM jobs JOIN plans USING (uid) WHERE phase='Queued' AND seq<? "
    "ORDER BY priority DESC, seq LIMIT 200"
)
_ENDED = (
    "SELECT plan, state FROM jobs JOIN plans USING (uid) WHERE phase IN ('Succeeded', 'Failed') "
    "ORDER BY seq DESC LIMIT 50"
)
_Command = tuple[str, ...]
_Runs = dict[_Command, list[float]]


class _Planned(msgspec.Struct, frozen=True):
    """Of a plan, what was asked for."""

    job: MPIJob


def wait_estimate(store: Store, clock: Clock, needs: Amounts, seq: int | None = None) -> float | None:
    """Return how long a job at this place of the queue (None: a new one) will wait, as far as history tells."""
    found = _played(store, clock, needs, seq)
    return None if found is None else found.seconds


def wait_bound(store: Store, clock: Clock, needs: Amounts) -> float | None:
    """Return within which time a new job will start because deadlines end those before it; None without them."""
    found = _played(store, clock, needs, bounds_alone=True)
    return None if found is None else found.high


def _played(
    store: Store, clock: Clock, needs: Amounts, seq: int | None = None, *, bounds_alone: bool = False
) -> queue_wait.Estimate | None:
    """Return what the queue comes to, by earlier runs of each command or by the deadlines alone."""
    free = clock.capacity.minus(scheduler.held(store))
    before = store.read(_AHEAD, seq if seq is not None else 1 << 62)
    if not before and needs.fits(free):
        return queue_wait.estimate(queue_wait.Waiting(needs), free=free, finished=())
    runs = None if bounds_alone else _runs(store)
    running = [
        _running(_job(plan), decode_state(state).started, Amounts(*held), clock.now, runs)
        for plan, state, *held in store.read(_HOLDING)
    ]
    ahead = [_waiting(_job(plan), Amounts(*wanted), runs) for plan, *wanted in before]
    return queue_wait.estimate(
        queue_wait.Waiting(needs, own=()), free=free, finished=(), running=running, ahead=ahead
    )


def _running(
    job: MPIJob, started: float | None, holds: Amounts, now: float, runs: _Runs | None
) -> queue_wait.Running:
    elapsed = max(0.0, now - (started or now))
    longer = tuple(one for one in _own(job, runs) if one > elapsed)
    return queue_wait.Running(elapsed, holds, _limit(job, known=runs is None or bool(longer)), longer)


def _waiting(job: MPIJob, needs: Amounts, runs: _Runs | None) -> queue_wait.Waiting:
    own = tuple(_own(job, runs))
    return queue_wait.Waiting(needs, _limit(job, known=runs is None or bool(own)), own)


def _limit(job: MPIJob, *, known: bool) -> float | None:
    """Return when a job has ended in any case; a deadline alone is a bound, no estimate."""
    return job.deadline_seconds + job.grace_seconds if known and job.deadline_seconds is not None else None


def _own(job: MPIJob, runs: _Runs | None) -> list[float]:
    return [] if runs is None else runs.get(_command(job), [])


def _runs(store: Store) -> _Runs:
    """Return how long the last finished jobs held their resources, by command."""
    found: _Runs = {}
    for plan, blob in store.read(_ENDED):
        state = decode_state(blob)
        if state.started is not None and state.finished is not None:
            found.setdefault(_command(_job(plan)), []).append(state.duration_seconds(state.finished) or 0.0)
    return found


def _command(job: MPIJob) -> _Command:
    """Return what runs of equal length have in common: every word, the image and the size of the world."""
    return (*job.words, job.image, str(job.world))


def _job(plan: bytes) -> MPIJob:
    return codec.decode(plan, _Planned).job
