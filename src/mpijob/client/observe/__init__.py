"""Wait, logs, artifacts, diagnosis, bundles."""
