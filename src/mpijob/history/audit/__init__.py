"""The audit log: a hash chain of who did what."""
