"""A training that can be ended at any moment: it goes on from its last checkpoint, in the next attempt or job.

What makes it so: rank 0 writes the state to a new file and renames it (a checkpoint is whole or not there),
every rank begins with what is there, and on the signal before the end (`signal` in the job file) one more
is written. CHECKPOINTS names the directory: a volume that outlives the attempt.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType

import numpy as np
from mpi4py import MPI

import mpijob

STEPS, EVERY = 40, 5
PLACE = Path(os.environ["CHECKPOINTS"]) / "state.npz"
asked_to_end = False


def note_the_signal(number: int, frame: FrameType | None) -> None:
    """Remember that the end is near; the loop looks at a quiet moment."""
    global asked_to_end
    asked_to_end = True


def save(step: int, weights: np.ndarray) -> None:
    """Write a checkpoint, whole or not at all."""
    draft = PLACE.with_name("draft.npz")
    np.savez(draft, step=step, weights=weights)
    os.replace(draft, PLACE)


def load() -> tuple[int, np.ndarray]:
    """Return where the last checkpoint stands; the beginning where there is none."""
    if not PLACE.exists():
        return 0, np.zeros(4)
    with np.load(PLACE) as kept:
        return int(kept["step"]), kept["weights"]


def main() -> None:
    """Train to the end, or to the signal."""
    signal.signal(signal.SIGUSR1, note_the_signal)
    world = MPI.COMM_WORLD
    begin, weights = world.bcast(load() if world.rank == 0 else None)
    if world.rank == 0:
        print(f"attempt {os.environ.get('MPIJOB_ATTEMPT', '1')} begins after step {begin}", flush=True)
    for step in range(begin + 1, STEPS + 1):
        gradient = np.full(4, float(world.rank + 1)) - weights / world.size
        weights = weights + 0.1 * world.allreduce(gradient) / world.size
        time.sleep(float(os.environ.get("PAUSE", "0.05")))
        ending = world.allreduce(asked_to_end, op=MPI.LOR)  # all ranks leave at the same step
        if world.rank == 0 and (step % EVERY == 0 or ending):
            save(step, weights)
            mpijob.report(step=step, steps=STEPS, norm=float(np.linalg.norm(weights)))
        if ending:
            raise SystemExit(75)  # "try again later": a retry goes on from here
        if step == int(os.environ.get("BREAK_AT", "0")) and begin == 0 and world.rank == 1:
            raise RuntimeError("broken on purpose, once")
    if world.rank == 0:
        print(f"RESULT steps={STEPS} norm={np.linalg.norm(weights):.6f} resumed_after={begin}", flush=True)


if __name__ == "__main__":
    main()
