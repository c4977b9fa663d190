"""The script before horovodrun and deepspeed, run with dash: the job's workers, unless the command names hosts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mpijob.formats.launch import own_launchers

HOSTS = "/run/hosts"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Both launchers, each behind our script; what they are given is what they print."""
    for name, text in own_launchers.files().items():
        path = tmp_path / "ours" / name.removeprefix("bin/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o700)
    (tmp_path / "theirs").mkdir()
    for name in own_launchers.OWN_LAUNCHERS:
        real = tmp_path / "theirs" / name
        real.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\nexit 3\n')
        real.chmod(0o700)
    return tmp_path


def given(programs: Path, name: str, *words: str) -> list[str]:
    path = f"{programs / 'ours'}:{programs / 'theirs'}:/usr/bin:/bin"
    argv = [str(programs / "ours" / name), *words]
    done = subprocess.run(
        argv, env={"PATH": path, "MPIJOB_HOSTS_FILE": HOSTS}, capture_output=True, text=True
    )
    assert done.returncode == 3, done.stderr
    real, *rest = done.stdout.splitlines()
    assert real == str(programs / "theirs" / name)
    return rest


@pytest.mark.parametrize("name", own_launchers.OWN_LAUNCHERS)
def test_the_jobs_workers_are_given_to_a_launcher_that_names_none(programs: Path, name: str) -> None:
    words = ("-np", "4", "python", "train.py", "--name", "two words", "$HOME", "")
    assert given(programs, name, *words) == ["--hostfile", HOSTS, *words]


@pytest.mark.parametrize(
    "words",
    [
        ("-H", "a:1,b:1", "python", "train.py"),
        ("--hosts=a:1", "python", "train.py"),
        ("--hostfile", "/mine", "train.py"),
        ("--hostfile=/mine", "train.py"),
        ("-np", "2", "--host-discovery-script", "/etc/mpi/discover_hosts.sh", "python", "train.py"),
        ("--check-build",),
        ("--version",),
    ],
)
def test_a_command_that_names_hosts_or_asks_for_help_keeps_its_words(
    programs: Path, words: tuple[str, ...]
) -> None:
    assert given(programs, "horovodrun", *words) == list(words)


def test_words_behind_the_program_are_the_programs_own(programs: Path) -> None:
    words = ("-np", "2", "python", "train.py", "-H", "5", "--hostfile", "/etc/mpi/hostfile")
    assert given(programs, "horovodrun", *words) == ["--hostfile", HOSTS, *words]


@pytest.mark.parametrize("words", [("--hostfile", "/etc/mpi/hostfile"), ("--hostfile=/etc/mpi/hostfile",)])
def test_the_engines_hostfile_is_replaced_by_one_in_the_form_that_they_read(
    programs: Path, words: tuple[str, ...]
) -> None:
    told = " ".join(given(programs, "deepspeed", *words, "train.py"))
    assert told.replace("=", " ") == f"--hostfile {HOSTS} train.py"


def test_a_launcher_that_is_not_installed_is_named_in_the_words_of_mpi(programs: Path) -> None:
    argv = [str(programs / "ours" / "deepspeed"), "train.py"]
    path = f"{programs / 'ours'}:/usr/bin:/bin"
    done = subprocess.run(
        argv, env={"PATH": path, "MPIJOB_HOSTS_FILE": HOSTS}, capture_output=True, text=True
    )
    assert done.returncode == 127
    assert done.stderr == "mpijob: execvp error on file deepspeed (No such file or directory)\n"
