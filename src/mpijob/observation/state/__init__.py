"""Derive the phase of a job, its first cause and its waiting reason from what was observed."""
