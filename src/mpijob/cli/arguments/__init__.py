"""Arguments of a job: flags, job files, and flags laid over job files."""
