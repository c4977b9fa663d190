"""Log files that are removed behind our back: what is missing is told, and nobody stumbles over it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mpijob import Client, Phase
from mpijob.model import Mark

from .support import a_job, running, succeeded

pytestmark = pytest.mark.engine


def files_of(client: Client, uid: str) -> Path:
    return Path(client.settings.home) / "jobs" / uid / "a1" / "logs"


@pytest.mark.parametrize("wanted", [{}, {"ranks": (0,)}, {"follow": True}, {"tail": 5}])
def test_lines_that_are_gone_are_told(client: Client, tmp_path: Path, wanted: dict[str, object]) -> None:
    job = succeeded(client, a_job("ring", "echo hello"))
    shutil.rmtree(files_of(client, job.ref.uid))
    (line,) = job.logs(**wanted)  # type: ignore[arg-type]  # one of the options at a time
    assert line.marks == (Mark.GAP,)
    assert line.text.startswith(b"mpijob: lines are missing here: the files of the log were removed")
    (file,) = client.download_logs("ring", tmp_path / "log", merged=True)
    assert b"lines are missing here" in file.read_bytes()


def test_a_job_that_said_nothing_or_never_began_misses_no_lines(client: Client) -> None:
    assert [*succeeded(client, a_job("quiet", "true")).logs()] == []
    running(client, a_job("first", "sleep 60"))
    waiting = client.submit(a_job("second", "echo hello", after=("first",)))
    waiting.cancel()
    assert waiting.state().phase is Phase.CANCELLED
    assert [*waiting.logs()] == []


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
