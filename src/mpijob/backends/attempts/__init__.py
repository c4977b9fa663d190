"""One attempt of a job, for engines that see its ranks (`local`, `slurm`): clock, log files, artifacts, evidence."""
