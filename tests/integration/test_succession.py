"""Another release is installed while jobs run: this one's runners make way, and nothing of a job is lost.

The other release is real: a copy of the package whose store has one format more, in processes of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mpijob
from mpijob import Client, codec
from mpijob.backends.local import LocalBackend
from mpijob.backends.local.queue import runner, runner_wakeup
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage.paths import Home
from mpijob.backends.local.worker import process_tree
from mpijob.model import Resources
from mpijob.settings import Settings

from .support import PATIENCE, a_job, check_nothing_runs, running

pytestmark = pytest.mark.engine
STEPS = "_MIGRATIONS = (_SCHEMA, _USAGE, _WAITS, _ATTEMPTS, _LIMITS, _TURNS)"
NEXT = '_MIGRATIONS = (_SCHEMA, _USAGE, _WAITS, _ATTEMPTS, _LIMITS, _TURNS, "CREATE TABLE of_the_next_release (x)")'


class Successor:
    """The next release, at work on the home of this one."""

    def __init__(self, place: Path, settings: Settings) -> None:
        package = Path(mpijob.__file__).parent
        shutil.copytree(package, place / "mpijob", ignore=shutil.ignore_patterns("page", "__pycache__"))
        store = place / "mpijob" / "backends" / "local" / "queue" / "store.py"
        text = store.read_text()
        assert STEPS in text
        store.write_text(text.replace(STEPS, NEXT))
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._environ = {**kept, "PYTHONPATH": str(place), "MPIJOB_HOME": settings.home, "MPIJOB_CORES": "4"}

    def __call__(self, *words: str) -> str:
        argv = (sys.executable, "-m", "mpijob", *words)
        done = subprocess.run(argv, env=self._environ, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def phase(self, name: str) -> str:
        return str(json.loads(self("describe", name, "-o", "json"))["state"]["phase"])


@pytest.fixture
def successor(tmp_path: Path, settings: Settings) -> Iterator[Successor]:
    successor = Successor(tmp_path / "next", settings)
    yield successor
    successor("delete", "--all", "--yes")
    check_nothing_runs(Path(settings.home) / "jobs")


@pytest.mark.req("FR-003")
def test_what_runs_and_what_waits_is_taken_over_by_the_next_release(
    settings: Settings, successor: Successor, tmp_path: Path
) -> None:
    client = Client(LocalBackend(settings), settings=settings)
    store, go = Store(Home(settings.home)), tmp_path / "go"
    assert store.is_current()
    whole = Resources(cpu="1900m", memory="128Mi")
    hold = f"echo begun; until [ -e {go} ]; do sleep 0.05; done; echo ended"
    running(client, a_job("first", hold, resources=whole))
    client.submit(a_job("second", "echo second", resources=whole))
    assert (successor.phase("first"), successor.phase("second")) == ("Running", "Queued")
    assert not store.is_current()
    go.touch()
    successor("wait", "first", "second")
    assert successor("logs", "first").count("ended") == 2
    successor("retry", "second")  # at once: a runner of ours may still listen
    successor("wait", "second")


def test_a_runner_whose_files_were_replaced_starts_another_and_claims_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package, started = tmp_path / "shapes.py", tmp_path / "started"
    package.touch()
    monkeypatch.setattr(codec, "__file__", str(package))
    monkeypatch.setattr(
        runner_wakeup, "start_runner", lambda home, settings: started.write_text(str(home.root))
    )
    one = runner.Runner(Home(settings.home), settings)
    store = Store(Home(settings.home))
    assert not one._is_outdated(store)
    package.unlink()
    (tmp_path / "other").touch()
    (tmp_path / "other").rename(package)
    assert one._is_outdated(store)
    _, status = os.waitpid(process_tree.fork_child(one.run), 0)  # a runner changes the process that it is
    assert (status, started.read_text()) == (0, settings.home)
