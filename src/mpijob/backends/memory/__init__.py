"""An engine that runs nothing: jobs play on a virtual timeline, so tests and demos need no MPI.

It keeps the promises of `backends.protocol`, held to them by the same conformance suite as the engine
that starts real processes (`backends.local`).
"""

from mpijob.backends.memory.backend import MemoryBackend
from mpijob.backends.memory.scenario import Outcome, Script

__all__ = ["MemoryBackend", "Outcome", "Script"]
