"""A home that an older release has used is taken over while its jobs run (`make test-upgrade FROM=v0.1.0`).

Both releases are real: each has an environment of its own, and both work on the same home.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
NEW = Path(sys.executable).parent / "mpijob"
PATIENCE = 120.0
HALF = ("--workers", "2", "--cpu", "500m", "--memory", "128Mi")


class Releases:
    """The older release and this one, at work on one home."""

    def __init__(self, place: Path) -> None:
        self.old_program = Path(os.environ["MPIJOB_OLD"])
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "MPIJOB_HOME": str(place / "state"),
            "MPIJOB_CORES": "2",
        }
        self._place = place

    def old(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._called(self.old_program, *words)

    def new(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._called(NEW, *words)

    def _called(self, program: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (program, *words), cwd=self._place, env=self._environ, capture_output=True, text=True, timeout=PATIENCE
        )  # fmt: skip

    def told(self, *words: str) -> str:
        """Return what this release says; it must end with 0."""
        done = self.new(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def phase(self, name: str) -> str:
        return str(self.state(name)["phase"])

    def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.told("describe", name, "-o", "json"))["state"]
        return found


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[Releases]:
    made = Releases(tmp_path)
    yield made
    made.new("delete", "--all", "--yes", "--grace", "0")


def test_the_older_release_is_another_one(releases: Releases) -> None:
    assert releases.old_program.exists()
    old, new = (
        subprocess.run(
            (program.parent / "python", "-c", "import mpijob; print(mpijob.__file__)"),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for program in (releases.old_program, NEW)
    )
    assert old != new


def test_a_job_that_ran_under_the_older_release_goes_on_and_ends_under_this_one(
    releases: Releases, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    script = f'echo "rank begins"; until [ -e {go} ]; do sleep 0.1; done; echo "rank ends"'
    made = releases.old("create", "live", *HALF, "--", "sh", "-c", script)
    assert made.returncode == 0, made.stderr
    assert releases.old("wait", "live", "--for", "running").returncode == 0
    assert releases.phase("live") == "Running"
    assert "live" in releases.told("list")
    assert releases.told("logs", "live").count("rank begins") == 2
    go.touch()
    assert releases.new("wait", "live").returncode == 0
    assert releases.told("logs", "live").count("rank ends") == 2
    assert "live" in releases.told("acct")
    assert releases.new("retry", "live").returncode == 0
    assert releases.new("wait", "live").returncode == 0


def test_a_job_that_the_older_release_left_in_the_queue_is_run(releases: Releases, tmp_path: Path) -> None:
    go = tmp_path / "go"
    whole = ("--workers", "2", "--cpu", "900m", "--memory", "128Mi")
    hold = f"until [ -e {go} ]; do sleep 0.1; done"
    assert releases.old("create", "first", *whole, "--", "sh", "-c", hold).returncode == 0
    assert releases.old("create", "second", *whole, "--", "echo", "second ran").returncode == 0
    assert releases.phase("second") == "Queued"
    go.touch()
    assert releases.new("wait", "first").returncode == 0
    assert releases.new("wait", "second").returncode == 0
    assert "second ran" in releases.told("logs", "second")


def test_what_ended_or_failed_or_was_deleted_under_the_older_release_is_still_answered_for(
    releases: Releases,
) -> None:
    releases.old("run", "good", *HALF, "--", "echo", "all well")
    releases.old("run", "bad", *HALF, "--", "sh", "-c", "exit 7")
    releases.old("run", "gone", *HALF, "--", "echo", "was here")
    releases.old("delete", "gone")
    assert "all well" in releases.told("logs", "good")
    assert "7" in releases.new("why", "bad").stdout
    assert "was here" in releases.told("logs", "gone")
    assert releases.phase("good") == "Succeeded"


def test_the_older_release_says_what_is_wrong_or_goes_on_when_it_comes_back(releases: Releases) -> None:
    releases.old("run", "mine", *HALF, "--", "echo", "one")
    releases.told("list")
    back = releases.old("list")
    if back.returncode:
        assert "newer mpijob" in back.stderr
        assert "MPIJOB_HOME" in back.stderr
    else:
        assert "mine" in back.stdout
