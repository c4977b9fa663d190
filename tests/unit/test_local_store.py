"""The local engine's database: every format that was ever released is brought forward, by whoever comes first."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mpijob.backends.local import store
from mpijob.backends.local.paths import Home
from mpijob.backends.local.store import Store
from mpijob.model import Sample


@pytest.mark.parametrize("format", range(len(store._STEPS) + 1))
def test_a_home_of_any_older_format_takes_what_is_measured_today(tmp_path: Path, format: int) -> None:
    home = Home(str(tmp_path / "home"))
    home.ensure()
    with sqlite3.connect(home.database) as db:
        for step in store._STEPS[:format]:
            db.executescript(step)
        db.execute(f"PRAGMA user_version={format}")
    opened = Store(home)
    sample = Sample(10.0, 0, 1.0, 1024, io_wait=0.5, network=7.0)
    opened.add_samples("u1", (sample,))
    assert opened.samples("u1") == (sample,)
    opened.close()


def test_many_that_open_a_fresh_home_at_once_make_it_once(tmp_path: Path) -> None:
    home = Home(str(tmp_path / "home"))
    with ThreadPoolExecutor(8) as crowd:
        versions = [*crowd.map(lambda _: _opened(home), range(16))]
    assert set(versions) == {len(store._STEPS)}


def _opened(home: Home) -> int:
    opened = Store(home)
    version = int(opened.read("PRAGMA user_version")[0][0])
    opened.close()
    return version
