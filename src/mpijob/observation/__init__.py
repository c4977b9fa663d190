"""Streams over time: log lines in their stored form and in order, phases, waits; all of it pure."""
