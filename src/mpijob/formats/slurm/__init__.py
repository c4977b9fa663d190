"""Slurm's batch scripts, job states, pending reasons and command output."""
