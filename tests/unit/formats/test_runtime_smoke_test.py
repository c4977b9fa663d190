"""What is tried in a copy of this process ends there, whatever threads and hooks the process has."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from mpijob.backends.local.worker import isolation


def a_hook_that_never_ends(code: int) -> Any:
    """As one that needs a lock which a thread of the copied process held; the kernel ends it for the test's sake."""
    signal.alarm(5)
    signal.pause()


@pytest.mark.thorough
def test_no_hook_on_the_end_of_a_process_runs_in_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    isolation.namespaces_allowed.cache_clear()
    allowed = isolation.namespaces_allowed()
    isolation.namespaces_allowed.cache_clear()
    monkeypatch.setattr(os, "_exit", a_hook_that_never_ends)
    assert isolation.namespaces_allowed() is allowed
