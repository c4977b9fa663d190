"""Record every change of a job in the audit log."""
