"""Say who is there: every rank greets, then rank 0 tells the sum of all rank numbers."""

from mpi4py import MPI

comm = MPI.COMM_WORLD
print(f"hello from rank {comm.rank} of {comm.size}", flush=True)
total = comm.reduce(comm.rank)
if comm.rank == 0:
    print(f"the rank numbers add up to {total}", flush=True)
