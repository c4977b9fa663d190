"""One attempt of a job, for engines that see its ranks: clock, log files, files that it left, evidence."""
