"""The promises that every engine keeps, on a real Slurm: the launcher as a part of its own."""

from __future__ import annotations

from tests.conformance.test_launcher import *  # noqa: F403 - the promises themselves
from tests.e2e.slurm.promises import place  # noqa: F401 - the fixture
