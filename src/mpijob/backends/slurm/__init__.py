"""Jobs on a Slurm cluster, by its own commands: on this machine, or on a login node by ssh."""
