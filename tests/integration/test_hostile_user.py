"""Another user of the same machine cannot run code as the owner of a job, nor reach the owner's files through one.

The attacks are executed, by a process of another user that watches the shared directories for as long as the job
lives. On success an attack leaves a marker that the job's owner wrote.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.other_user import NOBODY, SOMEBODY, give, running_as

from mpijob import Client, Phase
from mpijob.model import Launch, Retry

from .support import PATIENCE, a_job, eventually, private_dirs, running, said

pytestmark = [pytest.mark.engine, pytest.mark.security, pytest.mark.hostile]

# Re-creates each directory of a job as soon as it is gone, puts a program of its own in the agent's place again and
# again, and does the same inside each directory that it may write to. Notes each directory that it could make.
SWAP = r"""
cd "$1"; seen=""
printf '#!/bin/sh\nid -u >> "%s"\nexit 255\n' "$2/marker" > "$2/evil"; chmod 755 "$2/evil"
while :; do
  for name in mpijob-*; do
    case " $seen " in *" $name "*) ;; *) [ "$name" = "mpijob-*" ] || seen="$seen $name" ;; esac
  done
  for name in $seen; do
    mkdir -m 777 "$name" 2> /dev/null && echo "$name" >> "$2/made"
    [ -O "$name" ] || mv "$name" "$name.away" 2> /dev/null
    [ -w "$name" ] || continue
    cp "$2/evil" "$name/.evil" && mv -f "$name/.evil" "$name/agent"
  done 2> /dev/null
done
"""
# Re-creates each directory of a job as a link into a directory of the victim's.
LINK = r"""
cd "$1"; seen=""
while :; do
  for name in mpijob-*; do
    case " $seen " in *" $name "*) ;; *) [ "$name" = "mpijob-*" ] || seen="$seen $name" ;; esac
  done
  for name in $seen; do
    [ -e "$name" ] || ln -s "$3" "$name" 2> /dev/null && echo "$name" >> "$2/made"
  done
done
"""
BACK_OFF = Retry(limit=1, backoff_seconds=2.0)
SECOND_TIME_LUCKY = 'test "$MPIJOB_ATTEMPT" = 2'


@pytest.fixture
def lair() -> Iterator[Path]:
    """A directory in which everybody can write what the attack achieved."""
    with tempfile.TemporaryDirectory(prefix="lair-", dir="/tmp") as place:
        os.chmod(place, 0o777)
        yield Path(place)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files that all users share, like /tmp; nobody has a runtime directory here.

    It is one of its own: the attackers leave alone whoever else works on this machine.
    """
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with tempfile.TemporaryDirectory(prefix="all-", dir="/tmp") as place:
        os.chmod(place, 0o1777)
        monkeypatch.setenv("TMPDIR", place)
        yield Path(place)


@pytest.mark.parametrize("attacker", [NOBODY, SOMEBODY])
def test_a_directory_made_again_during_back_off_runs_nothing_of_its_maker(
    client: Client, family: str, lair: Path, shared: Path, attacker: int
) -> None:
    with ExitStack() as ends:
        ends.enter_context(running_as(attacker, "sh", "-c", SWAP, "attack", str(shared), str(lair)))
        eventually(lambda: (lair / "evil").exists(), "the attacker is at work")
        job = client.submit(a_job("victim", SECOND_TIME_LUCKY, mpi=family, retry=BACK_OFF))
        state = job.wait(PATIENCE)
        assert (lair / "made").read_text(), "the attacker saw a directory and took its name"
    assert not (lair / "marker").exists()
    assert (state.phase, state.attempt) == (Phase.SUCCEEDED, 2)


def test_a_link_in_the_place_of_the_directory_leads_no_file_astray(
    client: Client, lair: Path, shared: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "hostfile").write_text("mine")
    (precious / "agent").write_text("mine too")
    with ExitStack() as ends:
        ends.enter_context(
            running_as(NOBODY, "sh", "-c", LINK, "attack", str(shared), str(lair), str(precious))
        )
        job = client.submit(a_job("victim", SECOND_TIME_LUCKY, retry=BACK_OFF))
        state = job.wait(PATIENCE)
        assert (lair / "made").read_text()
    assert {path.name: path.read_text() for path in precious.iterdir()} == {
        "hostfile": "mine",
        "agent": "mine too",
    }
    assert (state.phase, state.attempt) == (Phase.SUCCEEDED, 2)


def test_a_suspended_job_is_resumed_in_a_directory_that_nobody_could_prepare(
    client: Client, lair: Path, shared: Path
) -> None:
    with ExitStack() as ends:
        ends.enter_context(running_as(NOBODY, "sh", "-c", SWAP, "attack", str(shared), str(lair)))
        job = client.submit(a_job("victim", "test -e again || { touch again; sleep 600; }"))
        eventually(lambda: job.state().phase is Phase.RUNNING, "it runs")
        job.suspend()
        job.wait(PATIENCE, {Phase.SUSPENDED})
        eventually(lambda: (lair / "made").exists(), "the attacker took the name")
        job.resume()
        state = job.wait(PATIENCE)
    assert not (lair / "marker").exists()
    assert state.phase is Phase.SUCCEEDED


@pytest.mark.parametrize("which", [0, 1], ids=["run-dir", "tmpdir"])
def test_a_directory_that_was_exchanged_while_the_job_runs_is_used_no_more(
    client: Client, shared: Path, which: int
) -> None:
    """As where somebody cleans /tmp: whoever is quick then has the name. A visit is refused, and the job ends."""
    job = running(client, a_job("victim", "sleep 600"))
    place = Path(private_dirs(client, job)[which])
    place.rename(away := place.with_name(f"{place.name}-away"))
    place.mkdir(mode=0o777)
    try:
        give(place, NOBODY)
        assert job.execute(("touch", "visited")) == 255
        state = job.wait(PATIENCE)
        assert (state.phase, state.reason) == (Phase.FAILED, "StartRefused")
        assert place.lstat().st_uid != os.geteuid(), "what is not ours is left alone"
    finally:
        place.rmdir()
        shutil.rmtree(away)


def test_the_agent_of_a_job_is_in_the_runtime_directory_of_its_owner(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There nobody else may even look; the ranks' own files are elsewhere, for it is small."""
    monkeypatch.delenv("TMPDIR", raising=False)
    with tempfile.TemporaryDirectory(prefix="xdg-", dir="/tmp") as runtime:  # of mode 0700
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        nodes = Launch(map_by="core")  # mapped by the library: each worker is a node, reached by the agent
        job = client.submit(
            a_job("victim", 'echo "${HYDRA_LAUNCHER_EXEC%/*/agent} ${TMPDIR%/*}"', mpi="mpich", launch=nodes)
        )
        job.wait_for_completion(PATIENCE)
        assert set(said(job)[0]) == {f"{runtime} /tmp"}
        eventually(lambda: not os.listdir(runtime), "nothing is left there")
