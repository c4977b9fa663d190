"""Code of a repository on this machine: what was planned runs, and runs again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpijob import Client
from mpijob.model import Code, GitSource

from .support import a_job, ended

pytestmark = [pytest.mark.engine, pytest.mark.req("FR-008")]


def commit(folder: Path, text: str) -> str:
    """Write a file into a repository and return the commit."""
    folder.mkdir(exist_ok=True)
    names = {f"GIT_{who}_{what}": "ann" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    (folder / "data.txt").write_text(text)
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", text)):
        subprocess.run(["git", *words], cwd=folder, env=os.environ | names, check=True)
    told = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
    )
    return told.stdout.strip()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def lines(client: Client, name: str) -> set[bytes]:
    return {line.text for line in client.logs(name) if line.rank is not None}


def test_a_job_runs_the_commit_that_was_planned_and_so_does_its_clone(client: Client, tmp_path: Path) -> None:
    first = commit(tmp_path / "origin", "first")
    code = Code(git=GitSource(url=str(tmp_path / "origin")))
    ended(client, a_job("pinned", "cat data.txt; echo; echo 1 > result.txt", workers=1, code=code))
    assert lines(client, "pinned") >= {b"first"}
    assert client.spec("pinned").code.git.commit == first
    assert [file.path for file in client.artifacts("pinned")] == ["result.txt"]
    commit(tmp_path / "origin", "second")
    client.clone("pinned", "again").wait_for_completion(60)
    assert lines(client, "again") >= {b"first"}


def test_the_command_line_takes_a_repository(client: Client, tmp_path: Path) -> None:
    commit(tmp_path / "origin", "by-flag")
    words = [
        sys.executable,
        "-m",
        "mpijob",
        "run",
        "flagged",
        "--workers",
        "1",
        "--git",
        "origin",
        "--git-ref",
    ]
    branch = subprocess.run(
        ["git", "branch", "--show-current"],
        cwd=tmp_path / "origin",
        capture_output=True,
        text=True,
        check=True,
    )
    argv = [*words, branch.stdout.strip(), "--", "cat", "data.txt"]
    environ = os.environ | {"MPIJOB_HOME": client.settings.home}
    done = subprocess.run(
        argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "by-flag" in done.stdout
