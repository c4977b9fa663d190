"""Explains why a job failed: evidence in, ranked findings out. Rules are data; nothing here does I/O."""

from mpijob.diagnosis.evidence import Evidence, Memory, World
from mpijob.diagnosis.ranking import explain, fixed, summary

__all__ = ["Evidence", "Memory", "World", "explain", "fixed", "summary"]
