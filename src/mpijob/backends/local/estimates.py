"""How long a job will wait here: the queue played out over what finished jobs took."""

from __future__ import annotations

from mpijob.backends.local import scheduler
from mpijob.backends.local.listing import Clock
from mpijob.backends.local.store import Store, decode_state
from mpijob.model import Amounts, JobState
from mpijob.observation import wait


def wait_estimate(store: Store, clock: Clock, needs: Amounts, seq: int | None = None) -> float | None:
    """Return how long a job at this place of the queue (None: a new one) will wait, as far as history tells."""
    rows = store.read("SELECT state, cores, memory, gpus FROM jobs WHERE holds=1")
    running = [_running(decode_state(state), Amounts(*held), clock.now) for state, *held in rows]
    ahead = store.read(
        "SELECT cores, memory, gpus FROM jobs WHERE phase='Queued' AND seq<? ORDER BY priority DESC, seq LIMIT 200",
        seq if seq is not None else 1 << 62,
    )
    estimate = wait.estimate(
        wait.Waiting(needs),
        free=clock.capacity.minus(scheduler.held(store)),
        finished=_durations(store),
        running=running,
        ahead=[wait.Waiting(Amounts(*row)) for row in ahead],
    )
    return None if estimate is None else estimate.seconds


def _running(state: JobState, holds: Amounts, now: float) -> wait.Running:
    return wait.Running(max(0.0, now - (state.started or now)), holds)


def _durations(store: Store) -> list[float]:
    """Return how long the last finished jobs held their resources."""
    rows = store.read(
        "SELECT state FROM jobs WHERE phase IN ('Succeeded', 'Failed') ORDER BY seq DESC LIMIT 50"
    )
    states = [decode_state(row[0]) for row in rows]
    return [s.finished - s.started for s in states if s.started is not None and s.finished is not None]
