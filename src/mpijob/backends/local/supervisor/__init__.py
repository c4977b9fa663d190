"""Supervise one attempt of a job."""
