"""A Python function as a job: every rank runs it, rank 0's answer comes back."""

from mpijob import Client
from mpijob.client.submit import function


def estimate_pi(points: int) -> float:
    """Throw points at a square on every rank and count those in the circle."""
    import random

    from mpi4py import MPI

    world = MPI.COMM_WORLD
    dice = random.Random(world.rank)
    hits = sum(dice.random() ** 2 + dice.random() ** 2 < 1 for _ in range(points))
    return 4 * world.allreduce(hits) / (points * world.size)


if __name__ == "__main__":
    with Client() as client:
        job = client.run(function.job(estimate_pi, {"points": 200_000}, workers=2))
        print(f"pi is about {job.result():.3f}")
