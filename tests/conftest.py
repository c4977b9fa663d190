"""What all tests share: the requirement marks, how they are spread over processes, and patience.

Builders and fixtures live beside the tests that use them.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

# How long an example takes says more about the machine than about us. The same examples every time: a change is
# judged by what it changes. HYPOTHESIS_PROFILE=searching looks for new ones.
_SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("searching", deadline=None, suppress_health_check=_SLOW)
hypothesis.settings.register_profile("same", deadline=None, suppress_health_check=_SLOW, derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
pytest_plugins = ["tools.requirement_marks"]


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests with real jobs in one process, one after the other; the others run beside them."""
    for item in items:
        if item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.xdist_group("engine"))


_HEARD = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


def _changed() -> tuple[list[signal.Signals], bool]:
    return [one for one in _HEARD if signal.getsignal(one) is signal.SIG_IGN], gc.isenabled()


@pytest.fixture(autouse=True)
def _as_it_was_found() -> Iterator[None]:
    """Let no test change the process of all others: who is started with a signal ignored can never trap it."""
    before = _changed()
    yield
    assert _changed() == before
