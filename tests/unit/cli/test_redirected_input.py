"""What a command is given as its standard input reaches rank 0, or is refused; it is never dropped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

PLAN = (sys.executable, "-m", "mpijob", "plan", "x", "--workers", "2", "-o", "json", "--", "cat")


def planned(place: Path, given: IO[bytes] | int, *flags: str) -> subprocess.CompletedProcess[bytes]:
    argv = [*PLAN[:-2], *flags, *PLAN[-2:]]
    environ = {**os.environ, "MPIJOB_HOME": str(place / "home")}
    return subprocess.run(argv, stdin=given, capture_output=True, cwd=place, env=environ, check=False)


def job(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["job"]


@pytest.mark.thorough
def test_a_file_is_what_rank_0_reads(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    with open(tmp_path / "in.txt", "rb", buffering=0) as file:
        file.read(4)
        asked = job(planned(tmp_path, file))
        assert file.tell() == 4  # whoever else reads it finds it as it was
    assert asked["code"]["files"] == {asked["launch"]["stdin"]: "two\n"}


@pytest.mark.thorough
def test_nothing_is_nobody_s_input(tmp_path: Path) -> None:
    assert "launch" not in job(planned(tmp_path, subprocess.DEVNULL))
    reading, writing = os.pipe()
    assert "launch" not in job(planned(tmp_path, reading))
    os.close(writing)
    os.close(reading)


@pytest.mark.thorough
@pytest.mark.parametrize("data", [b"text\n", b"\x00\x01"])
def test_what_cannot_be_handed_on_is_refused(tmp_path: Path, data: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, data)
    done = planned(tmp_path, reading)
    os.close(writing)
    os.close(reading)
    assert done.returncode == 2
    assert b"--stdin" in done.stderr
    (tmp_path / "in.dat").write_bytes(b"\xff\xfe\x00")
    with open(tmp_path / "in.dat", "rb") as file:
        assert planned(tmp_path, file).returncode == 2


@pytest.mark.thorough
def test_a_file_that_the_job_names_goes_along(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    asked = job(planned(tmp_path, subprocess.DEVNULL, "--stdin", "in.txt"))
    assert asked["launch"]["stdin"] == "in.txt"
    assert asked["code"]["path"] == str(tmp_path)
