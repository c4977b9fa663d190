"""The promises that every engine keeps, on a real Slurm: earlier runs of a name and earlier attempts."""

from __future__ import annotations

from tests.conformance.test_runs import *  # noqa: F403 - the promises themselves
from tests.e2e.slurm.promises import place  # noqa: F401 - the fixture
