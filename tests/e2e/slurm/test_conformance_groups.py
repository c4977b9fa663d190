"""The promises that every engine keeps, on a real Slurm: groups of workers."""

from __future__ import annotations

from tests.conformance.test_groups import *  # noqa: F403 - the promises themselves
from tests.e2e.slurm.promises import place  # noqa: F401 - the fixture
