"""Groups of workers, on a cluster."""

from __future__ import annotations

from tests.conformance.test_groups import *  # noqa: F403 - the promises themselves
from tests.e2e.cluster.promises import backend, client, image, place, quarters, settings  # noqa: F401 - fixtures
