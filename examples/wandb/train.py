"""Fit a line with all ranks together; every rank keeps a run of its own, in one group that bears the job's name.

WANDB_NAME and WANDB_RUN_GROUP are the job's name already. Where one run is enough, only rank 0 calls wandb.init,
without a name. RANKS=first does that here.
"""

import os
import random

import wandb
from mpi4py import MPI

STEPS, RATE = 30, 0.3
world = MPI.COMM_WORLD
every_rank = os.environ.get("RANKS", "every") == "every"


def points() -> list[tuple[float, float]]:
    """Return this rank's share of a noisy line y = 2x + 1."""
    dice = random.Random(world.rank)
    return [(x := dice.uniform(-1, 1), 2 * x + 1 + dice.gauss(0, 0.1)) for _ in range(200)]


def begun() -> "wandb.Run | None":
    """Return this rank's run, None where it keeps none."""
    if world.rank and not every_rank:
        return None
    name = f"{os.environ['MPIJOB_NAME']}-rank-{world.rank}" if every_rank else None
    return wandb.init(name=name, config={"ranks": world.size, "rank": world.rank, "rate": RATE})


def trained(run: "wandb.Run | None") -> tuple[float, float]:
    """Return slope and offset; what each rank logs is its own loss, what all have in common comes from all."""
    slope, offset, mine = 0.0, 0.0, points()
    for step in range(STEPS):
        wrong = [(slope * x + offset - y, x) for x, y in mine]
        if run is not None:
            run.log({"loss": sum(error * error for error, _ in wrong) / len(mine), "slope": slope}, step=step)
        gradient = world.allreduce(sum(error * x for error, x in wrong) / len(mine)) / world.size
        shift = world.allreduce(sum(error for error, _ in wrong) / len(mine)) / world.size
        slope, offset = slope - RATE * 2 * gradient, offset - RATE * shift
    return slope, offset


run = begun()
slope, offset = trained(run)
if run is not None:
    run.finish()  # waits until all is written or sent
if world.rank == 0:
    print(f"RESULT slope={slope:.3f} offset={offset:.3f} ranks={world.size}")
    assert abs(slope - 2) < 0.1, "the line was not found"
    assert abs(offset - 1) < 0.1, "the line was not found"
