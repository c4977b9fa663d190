"""The text that starts the ranks in an allocation, run for real with dash: its attempts as a reader finds them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.unit.slurm_support import a_job, a_plan

from mpijob.backends.attempts import replay
from mpijob.formats.launch import allocation
from mpijob.model.spec.job import Retry

# whoever looks while the text decides about another attempt sees this
LOOK = """#!/bin/sh
case "$*" in *tried=*) cp "$MPIJOB_ATTEMPT_DIR/journal" "$MPIJOB_DIR/seen" ;; esac
exec awk "$@"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a job's directory, and beside it a program that looks into it."""
    place, programs = tmp_path / "job", tmp_path / "bin"
    for directory in (place / "work", programs):
        directory.mkdir(parents=True)
    for name, text in allocation.texts().items():
        (place / name).write_text(text)
    (programs / "gawk").write_text(LOOK)
    (programs / "gawk").chmod(0o755)
    return place


def run(place: Path, launch: str, retry: Retry) -> int:
    """Run the text to its end, with this body of the function that starts the ranks."""
    job = a_job(retry=retry)
    known = {"MPIJOB_DIR": str(place), "MPIJOB_NUMBER": "67", "MPIJOB_NODES": "n1", "MPIJOB_UID": "aa"}
    environ = {"PATH": f"{place.parent / 'bin'}:{os.environ['PATH']}", **allocation.limits(job), **known}
    text = f'mpijob_launch() {{ {launch}; }}\n. "$MPIJOB_DIR/allocation.sh"\n'
    done = subprocess.run(["dash", "-c", text], env=environ, capture_output=True, timeout=60, check=False)
    return done.returncode


def attempts(place: Path) -> list[replay.Attempt]:
    found = sorted(path for path in place.glob("a[0-9]*") if path.is_dir())
    return [replay.read(number, a_plan(), path) for number, path in enumerate(found, 1)]


def test_nobody_reads_the_end_of_an_attempt_without_the_next_one(place: Path) -> None:
    retry = Retry(limit=1, backoff_seconds=0)
    assert run(place, "exit 3", retry) == 3
    first, last = attempts(place)
    assert (first.code, first.retry_seconds, last.code, last.retry_seconds) == (3, 0.0, 3, None)
    seen = (place / "seen").read_text()
    assert (" launch\n" in seen, " end " in seen) == (True, False)


@pytest.mark.parametrize(("launch", "code"), [("exit 0", 0), ("kill -TERM $$; sleep 5", 143)])
def test_an_attempt_that_succeeds_or_that_the_batch_system_ends_is_the_last(
    place: Path, launch: str, code: int
) -> None:
    assert run(place, launch, Retry(limit=3, backoff_seconds=0)) == code
    (only,) = attempts(place)
    assert (only.code, only.retry_seconds, only.ended_by_itself) == (code, None, code == 0)
