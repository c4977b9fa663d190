"""Runs jobs on a Slurm cluster with Slurm's own commands: on this machine, or on a login node by ssh."""
