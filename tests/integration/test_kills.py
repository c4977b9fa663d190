"""Two seeds of `make kills`: whatever is killed, the record has all that was promised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mpijob.backends.kubernetes.recorder.log_capture import LogCapture

from . import kills
from .postgres_support import Server, serving

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("kills") as one:
        yield one


@pytest.mark.req("C-history", "C-ha")
def test_a_recorder_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    kills.check_run(2, tmp_path)


@pytest.mark.req("C-history", "C-ha")
def test_a_recorder_and_its_database_killed_again_and_again_lose_nothing(
    server: Server, tmp_path: Path
) -> None:
    kills.check_run(1, tmp_path, server)


def test_a_recorder_that_forgets_where_it_was_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the runs above show they can also deny: here every new recorder begins with the first line again."""

    class Forgetful(LogCapture):
        def _record(self) -> None:
            self._stamp, self._repeats = b"", 0
            super()._record()

    monkeypatch.setattr("mpijob.backends.kubernetes.recorder.recorder.LogCapture", Forgetful)
    with pytest.raises(AssertionError, match="are not what it said"):
        _several_runs(tmp_path)


def _several_runs(place: Path) -> None:
    """Make runs until one fails: on a busy machine a recorder may be killed before it has anything to forget."""
    for seed in range(2, 12):
        (place / str(seed)).mkdir()
        kills.check_run(seed, place / str(seed))
