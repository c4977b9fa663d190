"""Reads jobs: their directories, Slurm's facts about them, and their states."""
