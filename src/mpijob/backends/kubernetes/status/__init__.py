"""Read, list and watch jobs."""
