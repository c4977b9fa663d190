"""A program over Intel MPI: it says which library joined the ranks, and fails if it is another."""

from mpi4py import MPI

world = MPI.COMM_WORLD
library = MPI.Get_library_version().strip().splitlines()[0]
total = world.allreduce(world.rank + 1)
if world.rank == 0:
    print(f"RESULT library={library!r} sum={total} ranks={world.size}", flush=True)
if "Intel" not in library or total != world.size * (world.size + 1) // 2:
    raise SystemExit("this is not the sum, or not Intel MPI")
