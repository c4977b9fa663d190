"""Log files of local jobs."""
