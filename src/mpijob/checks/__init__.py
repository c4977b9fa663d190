"""Is the job well formed: an `MPIJob` goes in, findings come out, nothing is asked of the world.

`admission` judges afterwards whether the job may run and fits; `formats/jobfile` has by then turned
files into jobs.
"""

from mpijob.checks.run import codes, normal, run

__all__ = ["codes", "normal", "run"]
