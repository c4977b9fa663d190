"""Repositories whose files go along with a job, through the git of this machine."""
