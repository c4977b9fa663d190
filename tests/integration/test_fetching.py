"""What a job left, fetched: the user's own files are safe, whatever happened to them since."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpijob import AsyncClient, Client
from mpijob.backends.local import LocalBackend
from mpijob.errors import Conflict
from mpijob.model import Code
from mpijob.settings import Settings

from .support import a_job, ended

pytestmark = [pytest.mark.engine, pytest.mark.req("B-artifacts")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "data.txt").write_text("original\n")
    (folder / "notes.txt").write_text("as they were\n")
    return folder


def the_job(client: Client, folder: Path, script: str) -> None:
    ended(client, a_job("reads", script, workers=1, code=Code(path=str(folder))))


def test_a_file_that_a_job_only_read_is_none_of_its_own(client: Client, folder: Path) -> None:
    the_job(client, folder, "cat data.txt; echo 1 > result.txt")
    (folder / "data.txt").write_text("original\nmy-new-edit\n")
    (folder / "notes.txt").unlink()
    assert [file.path for file in client.artifacts("reads")] == ["result.txt"]
    assert client.fetch("reads", folder) == (folder / "result.txt",)
    assert (folder / "data.txt").read_text() == "original\nmy-new-edit\n"
    assert sorted(path.name for path in folder.iterdir()) == ["data.txt", "result.txt"]


def test_a_file_of_the_users_that_differs_stays_and_nothing_is_fetched(client: Client, folder: Path) -> None:
    the_job(client, folder, "echo by-the-job > data.txt; echo 1 > result.txt")
    (folder / "data.txt").write_text("my-new-edit\n")
    with pytest.raises(
        Conflict, match=r"differ from the job's files: data\.txt; nothing was downloaded"
    ) as told:
        client.fetch("reads", folder)
    assert "--to DIRECTORY" in told.value.hint
    assert "--overwrite" in told.value.hint
    assert (folder / "data.txt").read_text() == "my-new-edit\n"
    assert sorted(path.name for path in folder.iterdir()) == ["data.txt", "notes.txt"]
    assert client.fetch("reads", folder, ["result.txt"]) == (folder / "result.txt",)
    client.fetch("reads", folder, overwrite=True)
    assert (folder / "data.txt").read_text() == "by-the-job\n"


def test_what_was_fetched_already_can_be_fetched_again(client: Client, folder: Path, tmp_path: Path) -> None:
    the_job(client, folder, "echo 1 > result.txt")
    for _ in range(2):
        assert client.fetch("reads", tmp_path / "there") == (tmp_path / "there/result.txt",)


def test_the_async_client_keeps_a_newer_file_too(client: Client, settings: Settings, folder: Path) -> None:
    async def fetched() -> None:
        async with AsyncClient(LocalBackend(settings), settings=settings) as other:
            with pytest.raises(Conflict, match=r"data\.txt"):
                await other.fetch("reads", folder)
            await other.fetch("reads", folder, overwrite=True)

    the_job(client, folder, "echo by-the-job > data.txt")
    asyncio.run(fetched())
    assert (folder / "data.txt").read_text() == "by-the-job\n"


def test_the_command_says_where_files_are_and_refuses_to_overwrite(client: Client, folder: Path) -> None:
    def fetch(*more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "mpijob", "artifacts", "fetch", "reads", *more]
        env = os.environ | {"MPIJOB_HOME": client.settings.home, "MPIJOB_ENGINE": "local"}
        return subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=folder, env=env)

    the_job(client, folder, "echo by-the-job > data.txt")
    refused = fetch()
    assert (refused.returncode, refused.stdout) == (5, "")
    assert f"error: {folder} has files that differ from the job's files: data.txt" in refused.stderr
    assert (folder / "data.txt").read_text() == "original\n"
    done = fetch("--to", "there")
    assert (done.returncode, done.stdout) == (0, "there/data.txt\n")
    assert done.stderr == f"1 file in {folder / 'there'}\n"
    assert fetch("--overwrite").returncode == 0
    assert (folder / "data.txt").read_text() == "by-the-job\n"
