"""Reading jobs: their directories, what Slurm says of them, and where they stand."""
