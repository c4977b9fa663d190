"""Secrets of the user's own machine: what their sources hold reaches the ranks, or is refused with a sentence."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mpijob.backends import secrets
from mpijob.backends.local.backend import LocalBackend
from mpijob.errors import InvalidJob
from mpijob.model import JobRef, Secret
from mpijob.settings import Settings

LARGEST = (128 << 10) - len("T=\0")


def of(path: Path | str) -> Secret:
    return Secret(env="T", source=f"file:{path}")


@pytest.mark.parametrize("held", [b"hunter2", b"hunter2\n", b"hunter2\r\n", b"hunter2\n\n"])
def test_a_file_is_read_without_the_end_of_its_line(tmp_path: Path, held: bytes) -> None:
    (tmp_path / "t").write_bytes(held)
    assert secrets.read_value(of(tmp_path / "t")) == "hunter2"


@pytest.mark.parametrize(
    ("held", "reason"), [(b"ab\xffcdefgh", "is not valid Unicode"), (b"ab\0cdefgh", "contains a NUL byte")]
)
def test_a_file_that_holds_no_text_is_refused(tmp_path: Path, held: bytes, reason: str) -> None:
    (tmp_path / "t").write_bytes(held)
    with pytest.raises(InvalidJob, match=f"secret 'T': the value from file:.*/t {reason}") as refused:
        secrets.read_value(of(tmp_path / "t"))
    assert "base64" in refused.value.hint


def test_a_variable_that_holds_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "BAD", os.fsdecode(b"ab\xffcdefgh"))
    with pytest.raises(InvalidJob, match="secret 'T': the value from env:BAD is not valid Unicode"):
        secrets.read_value(Secret(env="T", source="env:BAD"))


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_secret_is_as_large_as_a_variable_can_be_and_no_larger(tmp_path: Path, letter: str) -> None:
    fits = letter * (LARGEST // len(letter.encode()))
    (tmp_path / "t").write_text(fits + "\n")
    assert secrets.read_value(of(tmp_path / "t")) == fits
    subprocess.run(["true"], env={"T": fits}, check=True)
    (tmp_path / "t").write_text(fits + letter)
    with pytest.raises(InvalidJob, match=rf"is too large for an environment variable \({LARGEST} bytes\)"):
        secrets.read_value(of(tmp_path / "t"))


def test_a_secret_is_not_cut_where_a_large_file_has_empty_lines(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("x" + "\n" * (256 << 10) + "x")
    with pytest.raises(InvalidJob, match="too large for an environment variable"):
        secrets.read_value(of(tmp_path / "t"))


@pytest.mark.timeout(60)
def test_an_endless_file_is_refused() -> None:
    with pytest.raises(
        InvalidJob, match="the value from file:/dev/zero is too large for an environment variable"
    ):
        secrets.read_value(of("/dev/zero"))


@pytest.mark.timeout(60)
def test_what_can_still_be_read_is_found_and_nothing_else_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("hunter2\n")
    (tmp_path / "bad").write_bytes(b"\xff")
    os.mkfifo(tmp_path / "pipe")
    places = ["bad", "pipe", "gone", "good"]
    assert secrets.read_available(of(tmp_path / place) for place in places) == ("hunter2",)


def test_the_log_of_an_ended_job_needs_no_source_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"ab\xffcdefgh")
    backend = LocalBackend(Settings(home=str(tmp_path / "home")))
    ended = JobRef("default", "ended", "u1")
    assert backend.secret_values(ended, (of(tmp_path / "t"),)) == ()
