"""What all tests share: the requirement marks, how they are spread over processes, and patience.

Builders and fixtures live beside the tests that use them.
"""

from __future__ import annotations

import hypothesis
import pytest

hypothesis.settings.register_profile(  # how long an example takes says more about the machine than about us
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")
pytest_plugins = ["tools.requirement_marks"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests with real jobs in one process, one after the other; the others run beside them."""
    for item in items:
        if item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.xdist_group("engine"))
