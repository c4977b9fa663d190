"""Plan a job for this machine."""
