"""The promises that every engine keeps, on a real cluster: jobs, from their making to their end."""

from __future__ import annotations

from tests.conformance.test_life import *  # noqa: F403 - the promises themselves
from tests.e2e.cluster.promises import backend, client, image, place, quarters, settings  # noqa: F401 - fixtures
