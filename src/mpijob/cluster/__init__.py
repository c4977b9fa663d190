"""The face that a cluster sees: its resources, the operator that keeps the platform, admission."""
