"""The recorder: capture states and logs of jobs while they run."""
