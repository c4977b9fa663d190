"""The promises that every engine keeps, on a real cluster: jobs, what is listed, watched, logged and told."""

from __future__ import annotations

from tests.conformance.test_telling import *  # noqa: F403 - the promises themselves
from tests.e2e.cluster.promises import backend, client, image, place, quarters, settings  # noqa: F401 - fixtures

# Usage is measured while a job runs; a cluster keeps no samples of a job that has ended until the recorder is there.
del test_usage_is_measured_for_each_worker  # noqa: F821 - one of the promises above
