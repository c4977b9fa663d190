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
# judged by what it changes. HYPOTHESIS_PROFILE=searching looks for new ones; the quick round tries the first few.
_SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("searching", deadline=None, suppress_health_check=_SLOW)
hypothesis.settings.register_profile("same", deadline=None, suppress_health_check=_SLOW, derandomize=True)
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("same"), max_examples=20)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
# A shell without job control starts what runs in the background with Ctrl-C ignored, and all its children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
_LONG_NAME = 80
pytest_plugins = ["tools.requirement_marks", "tools.second_tries"]


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one process: they share servers, and xdist is slow with thousands of groups."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.property)
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a test by the beginning of a long value: whoever reads a list of tests does not want all of it."""
    if not isinstance(val, str | bytes) or len(val) <= _LONG_NAME:
        return None
    text = val[:_LONG_NAME] if isinstance(val, str) else val[:_LONG_NAME].decode("latin-1")
    return f"{text.encode('unicode_escape').decode()}, {len(val)} in all"


_HEARD = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


def _changed() -> tuple[list[signal.Signals], bool]:
    return [one for one in _HEARD if signal.getsignal(one) is signal.SIG_IGN], gc.isenabled()


@pytest.fixture(autouse=True)
def _as_it_was_found() -> Iterator[None]:
    """Let no test change the process of all others: who is started with a signal ignored can never trap it."""
    before = _changed()
    yield
    assert _changed() == before
