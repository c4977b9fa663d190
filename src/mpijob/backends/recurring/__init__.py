"""Recurring jobs in files, for engines without a server, and the start of background processes."""
