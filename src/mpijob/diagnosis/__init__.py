"""Why a job failed: evidence in, ranked findings out. Rules are data; nothing here does I/O."""

from mpijob.diagnosis.engine import explain, fixed, summary
from mpijob.diagnosis.evidence import Evidence, Memory, World

__all__ = ["Evidence", "Memory", "World", "explain", "fixed", "summary"]
