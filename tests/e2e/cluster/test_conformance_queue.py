"""The promises that every engine keeps, on a real cluster: jobs, waiting for room and for each other."""

from __future__ import annotations

from tests.conformance.test_queue import *  # noqa: F403 - the promises themselves
from tests.e2e.cluster.promises import backend, client, image, place, quarters, settings  # noqa: F401 - fixtures
