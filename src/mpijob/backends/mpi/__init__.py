"""MPI installations of a machine, the one that a program is linked to, and the check of a job's command."""
