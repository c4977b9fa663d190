"""An engine that runs nothing: jobs are simulated on a virtual clock, so that tests and demos need no MPI.

It passes the same conformance suite (`tests/conformance`) as the engines that start processes.
"""

from mpijob.backends.memory.backend import MemoryBackend
from mpijob.backends.memory.scenario import Outcome, Script

__all__ = ["MemoryBackend", "Outcome", "Script"]
