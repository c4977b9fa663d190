"""Log files that are removed behind our back: what is missing is told, and nobody stumbles over it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mpijob import Client, Phase
from mpijob.model import Mark, Retry

from .support import a_job, running, succeeded

pytestmark = pytest.mark.engine


def files_of(client: Client, uid: str, attempt: int = 1) -> Path:
    return Path(client.settings.home) / "jobs" / uid / f"a{attempt}" / "logs"


@pytest.mark.parametrize("wanted", [{}, {"ranks": (0,)}, {"follow": True}, {"tail": 5}])
def test_lines_that_are_gone_are_told(client: Client, tmp_path: Path, wanted: dict[str, object]) -> None:
    job = succeeded(client, a_job("ring", "echo hello"))
    shutil.rmtree(files_of(client, job.ref.uid))
    (line,) = job.logs(**wanted)  # type: ignore[arg-type]  # one of the options at a time
    assert line.marks == (Mark.GAP,)
    assert line.text.startswith(b"mpijob: lines are missing here: the log files were removed")
    (file,) = client.download_logs("ring", tmp_path / "log", merged=True)
    assert b"lines are missing here" in file.read_bytes()
    job.delete()
    (kept,) = client.logs("ring", **wanted)  # type: ignore[arg-type]  # one of the options at a time
    assert (kept.marks, kept.text, kept.attempt, kept.role) == (
        line.marks,
        line.text,
        line.attempt,
        line.role,
    )
    (file,) = client.download_logs("ring", tmp_path / "kept", merged=True)
    assert b"lines are missing here" in file.read_bytes()


def test_only_the_attempt_whose_lines_are_gone_is_told_of_a_deleted_job(client: Client) -> None:
    job = client.submit(
        a_job(
            "again",
            "echo attempt $MPIJOB_ATTEMPT; exit 3",
            workers=1,
            retry=Retry(limit=2, backoff_seconds=0),
        )
    )
    assert job.wait(60).phase is Phase.FAILED
    for attempt in (1, 2):
        shutil.rmtree(files_of(client, job.ref.uid, attempt))
    job.delete()
    assert [(line.attempt, Mark.GAP in line.marks) for line in client.logs("again")][:3] == [
        (1, True),
        (2, True),
        (3, False),
    ]
    assert not [line for line in client.logs("again", attempt=3) if Mark.GAP in line.marks]
    assert [line.attempt for line in client.logs("again", attempt=2)] == [2]


def test_a_job_that_said_nothing_or_never_began_misses_no_lines(client: Client) -> None:
    quiet = succeeded(client, a_job("quiet", "true"))
    assert [*quiet.logs()] == []
    quiet.delete()
    assert [*client.logs("quiet")] == []
    running(client, a_job("first", "sleep 60"))
    waiting = client.submit(a_job("second", "echo hello", after=("first",)))
    waiting.cancel()
    assert waiting.state().phase is Phase.CANCELLED
    assert [*waiting.logs()] == []
    waiting.delete()
    assert [*client.logs("second")] == []


def test_who_follows_a_job_that_removes_its_log_is_told_and_sees_it_end(client: Client) -> None:
    job = running(client, a_job("ring", "echo hello; while [ ! -e go ]; do sleep 0.05; done", workers=1))
    seen = []
    for line in job.logs(follow=True):
        seen.append(line)
        if line.text == b"hello":
            shutil.rmtree(files_of(client, job.ref.uid))
            (Path(client.settings.home) / "jobs" / job.ref.uid / "work" / "go").touch()
    assert [(line.rank, line.marks) for line in seen if Mark.GAP in line.marks] == [(0, (Mark.GAP,))]
    assert b"rank-0.log was removed" in seen[-1].text
