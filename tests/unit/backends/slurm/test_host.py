"""The machine where Slurm's commands run: words reach them as they are, and no more of our variables than is meant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpijob.backends.slurm.host import Answer, Host, SshHost
from mpijob.errors import BackendError

WORDS = [
    "a b",
    "",
    "$HOME",
    "`id`",
    "$(id)",
    "'",
    '"',
    "a;b",
    "-n",
    "*",
    "é",
    "a\nb",
    "\\",
    "!x",
    "~",
    "#",
    "\x1e\x1f",
]
SSH = """#!/bin/sh
# an ssh that runs the line on this machine, as a login node's shell would; -O and options are left out
while [ $# -gt 1 ]; do shift; done
printf '%s\\n' "$1" >>"{log}"
case $1 in "bash -lc env")
  printf '%s\\n' HOME=/home/far USER=far PATH="$PATH" SLURM_CONF=/etc/far.conf SECRET=1; exit;;
esac
exec /bin/sh -c "$1"
"""


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshHost:
    """Return a login node that is reached by a program in place of ssh."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(SSH.format(log=tmp_path / "lines"))
    (programs / "ssh").chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return SshHost("login:2222", tmp_path / "near")


@pytest.mark.security
def test_words_reach_a_command_here_as_they_are(tmp_path: Path) -> None:
    done = Host(tmp_path).call(["printf", "%s|", *WORDS])
    assert (done.code, done.out) == (0, "".join(f"{word}|" for word in WORDS))


@pytest.mark.security
def test_words_reach_a_command_on_the_login_node_as_they_are(far: SshHost) -> None:
    done = far.call(["printf", "%s|", *WORDS], env={"LC_ALL": "C.UTF-8"})
    assert (done.code, done.out) == (0, "".join(f"{word}|" for word in WORDS))


@pytest.mark.security
def test_a_variable_reaches_a_command_on_the_login_node_as_it_is(far: SshHost) -> None:
    for value in ("a b", "$(id)", "'\"", "x=y"):
        assert far.call(["printenv", "VALUE"], env={"VALUE": value}).out == f"{value}\n"


def test_the_login_nodes_own_variables_say_where_jobs_are(far: SshHost) -> None:
    assert far.environ()["USER"] == "far"
    assert far.path("jobs", "beef") == "/home/far/.local/state/mpijob/slurm/jobs/beef"
    assert far.call(["printenv", "SLURM_CONF"]).out == "/etc/far.conf\n"
    assert far.call(["sh", "-c", "echo ${SLURM_JOB_ID:-none}"]).out == "none\n"


def test_a_bare_command_gets_what_finds_slurm_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    monkeypatch.setenv("SBATCH_ACCOUNT", "science")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    bare = Host(tmp_path).call(["env"], bare=True).out.splitlines()
    assert {"SLURM_CONF=/etc/slurm/slurm.conf", "SBATCH_ACCOUNT=science"} <= {*bare}
    assert not [line for line in bare if line.startswith(("MY_SECRET", "SLURM_JOB_ID"))]


def test_an_allocation_around_us_is_not_that_of_our_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_MEM_PER_NODE"):
        monkeypatch.setenv(name, "12")
    monkeypatch.setenv("MY_OWN", "kept")
    told = Host(tmp_path).call(["env"], env={"TZ": "UTC"}).out.splitlines()
    assert not [line for line in told if line.startswith("SLURM_")]
    assert {"MY_OWN=kept", "TZ=UTC"} <= {*told}


def test_a_command_that_there_is_not_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BackendError) as caught:
        Host(tmp_path).call(["no-such-sbatch"])
    assert ("'no-such-sbatch'" in caught.value.message, caught.value.passing) == (True, False)
    assert "slurm+ssh://" in caught.value.hint


def test_a_command_that_does_not_answer_may_answer_later(tmp_path: Path) -> None:
    with pytest.raises(BackendError) as caught:
        Host(tmp_path).call(["sleep", "60"], seconds=0.01)
    assert caught.value.passing
    assert "0.01 s" in caught.value.message


def test_no_connection_by_ssh_is_told_apart_from_a_command_that_failed(far: SshHost) -> None:
    assert far.call(["sh", "-c", "echo no >&2; exit 3"]) == Answer(3, "", "no\n")
    with pytest.raises(BackendError) as caught:
        far.call(["sh", "-c", "exit 255"])
    assert caught.value.passing
    assert "login" in caught.value.message


def test_a_directory_is_made_once(tmp_path: Path, far: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far, "_far", str(tmp_path / "far $HOME"))
    for host in (Host(tmp_path / "root"), far):
        assert [host.make("names/default/solve/1"), host.make("names/default/solve/1")] == [True, False]
    assert (tmp_path / "far $HOME" / "names/default/solve/1").is_dir()
    assert (tmp_path / "root" / "names/default/solve/1").stat().st_mode & 0o777 == 0o700


@pytest.mark.security
def test_removing_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    host = Host(tmp_path / "root")
    host.make("jobs/beef")
    (tmp_path / "kept").mkdir()
    (tmp_path / "root/jobs/link").symlink_to(tmp_path / "kept")
    for place in ("jobs/link", "jobs/beef", "jobs/nothing"):
        host.remove(place)
    assert [*(tmp_path / "root/jobs").iterdir()] == []
    assert (tmp_path / "kept").is_dir()


def test_what_is_told_of_a_failure_is_its_end() -> None:
    assert Answer(1, "out\n", "").said == "out"
    assert Answer(1, "out\n", "err\n").said == "err"
    assert len(Answer(1, "", "x" * 10_000).said) == 2000
