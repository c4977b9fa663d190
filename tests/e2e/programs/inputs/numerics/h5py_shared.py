import h5py
from mpi4py import MPI

world = MPI.COMM_WORLD
with h5py.File("shared.h5", "w", driver="mpio", comm=world) as file:
    data = file.create_dataset("x", (world.size,), dtype="i")
    data[world.rank] = world.rank + 1
with h5py.File("shared.h5", "r", driver="mpio", comm=world) as file:
    print(f"rank {world.rank} of {world.size} sum {int(file['x'][:].sum())}")
