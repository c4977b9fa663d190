"""Run a program inside an MPI world and let rank 0 print how long it took: `timed.py PROGRAM ARGS…`."""

import runpy
import sys
import time

from mpi4py import MPI

MPI.COMM_WORLD.Barrier()
start = time.perf_counter()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print(f"seconds={time.perf_counter() - start:.6f}", flush=True)
