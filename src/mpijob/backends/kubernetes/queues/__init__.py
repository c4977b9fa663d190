"""Kueue's queues over time: who waits in which order, and when each will start."""
