"""The words by which ranks are told to count their MPI calls, and by which pods hand the counts on.

A rank's wrapper preloads the shim (`backends/profiler`), which writes a file for each rank into `DIRECTORY`. On one
machine the engine reads these files; in a pod they are printed into the worker's own log, each as one line.
"""

from __future__ import annotations

DIRECTORY = "MPIJOB_MPI_PROFILE"
SHIM = "MPIJOB_PROFILER"
