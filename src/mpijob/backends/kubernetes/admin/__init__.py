"""Limits, runtimes, overview, form options and versions of a cluster."""
