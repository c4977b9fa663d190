"""Code of a repository in real pods: fetched here, at a commit that the cluster's job keeps."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.support import Place, a_job, own_place, said

from mpijob.model import Code, GitSource


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "git") as place:
        yield place


def commit(folder: Path, text: str) -> str:
    """Write a script into a repository and return the commit."""
    folder.mkdir(exist_ok=True)
    names = {f"GIT_{who}_{what}": "ann" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    (folder / "say.sh").write_text(f"echo {text}\n")
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", text)):
        subprocess.run(["git", *words], cwd=folder, env=os.environ | names, check=True)
    told = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
    )
    return told.stdout.strip()


@pytest.mark.req("FR-008")
def test_every_rank_runs_the_commit_that_was_planned_and_so_does_a_clone(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = commit(tmp_path / "origin", "first")
    code = Code(git=GitSource(url=str(tmp_path / "origin")))
    job = place.succeeded(a_job("pinned", command=("sh", "say.sh"), code=code))
    assert said(job) == {0: ["first"], 1: ["first"]}
    assert job.spec.code.git.commit == first
    commit(tmp_path / "origin", "second")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    again = place.client.clone("pinned", "again")
    again.wait_for_completion(300)
    assert said(again) == {0: ["first"], 1: ["first"]}
    for one in (job, again):
        one.delete(grace_period=0)
