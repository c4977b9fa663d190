"""Whether a job is well formed: an `MPIJob` in, findings out, without any other information.

`admission` decides afterwards whether the job may run and fits; `formats/jobfile` reads files into jobs before.
"""

from mpijob.checks.run import codes, normal, run

__all__ = ["codes", "normal", "run"]
