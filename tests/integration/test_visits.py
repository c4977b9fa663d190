"""`exec`: a command or a shell inside a worker, beside a rank, and after a failure."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mpijob import Client, Phase
from mpijob.errors import Conflict, NotFound

from .support import PATIENCE, a_job, eventually, running

pytestmark = [pytest.mark.engine, pytest.mark.req("C-exec")]

VISIT = """
import sys
import msgspec
from mpijob import Client
from mpijob.settings import Settings
client = Client(settings=msgspec.json.decode(sys.argv[1], type=Settings))
sys.exit(client.execute("host", sys.argv[3:], rank=int(sys.argv[2])))
"""


def visit(client: Client, rank: int, *argv: str) -> list[str]:
    """Return the words that start a visit from a process of its own."""
    return [sys.executable, "-c", VISIT, msgspec.json.encode(client.settings).decode(), str(rank), *argv]


@pytest.mark.parametrize(
    ("script", "status"), [("exit 7", 7), ("true", 0), ("kill -9 $$", 137), ("exec ./no-such-program", 127)]
)
def test_a_visit_ends_with_the_commands_own_status(client: Client, script: str, status: int) -> None:
    job = running(client, a_job("host", "sleep 300"))
    assert job.execute(("sh", "-c", script), worker=1) == status


def test_a_visit_that_cannot_be_started_says_so_as_a_shell_does(client: Client) -> None:
    job = running(client, a_job("host", "sleep 300"))
    assert job.execute(("no-such-program-here",), worker=0) == 127


def test_a_visit_beside_a_rank_is_in_its_worker_and_passes_input_and_output(
    client: Client, family: str
) -> None:
    running(client, a_job("host", "sleep 300", mpi=family, slots=2, workers=2))
    words = visit(client, 3, "sh", "-c", 'echo "worker $MPIJOB_WORKER"; tr a-z A-Z; echo oops >&2')
    done = subprocess.run(
        words, input="shout\n", capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert (done.stdout, done.stderr) == ("worker 1\nSHOUT\n", "oops\n")


def test_a_shell_in_a_worker_has_a_terminal_of_its_own(client: Client) -> None:
    running(client, a_job("host", "sleep 300"))
    ours, theirs = pty.openpty()
    with subprocess.Popen(visit(client, 1, "sh"), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, b"test -t 0 && echo on-$(expr 20 + 22)-$MPIJOB_WORKER; exit 5\n")
        heard = read_all(ours)
        assert process.wait(PATIENCE) == 5
    assert b"on-42-1" in heard


def read_all(fd: int) -> bytes:
    """Return what a terminal shows until its other side is closed."""
    heard = b""
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:
            return heard
        if not data:
            return heard
        heard += data


def test_what_a_visitor_leaves_running_ends_with_the_job(client: Client) -> None:
    job = running(client, a_job("host", "sleep 300"))
    assert job.execute(("sh", "-c", "setsid sleep 300 > /dev/null 2>&1 & exit 0"), worker=0) == 0
    job.cancel(grace_period=0)
    assert job.state().phase is Phase.CANCELLED


def test_nobody_visits_a_job_that_has_ended_or_a_rank_that_is_not_there(client: Client) -> None:
    job = running(client, a_job("host", "while [ ! -e go ]; do sleep 0.05; done"))
    with pytest.raises(NotFound, match="9"):
        job.execute(("true",), rank=9)
    (Path(client.settings.home) / "jobs" / job.ref.uid / "work" / "go").touch()
    job.wait_for_completion(PATIENCE)
    with pytest.raises(Conflict, match="Succeeded"):
        job.execute(("true",), worker=0)


def test_a_failed_job_is_kept_for_a_look_as_long_as_it_asks(client: Client) -> None:
    job = client.submit(
        a_job("host", 'test "$MPIJOB_RANK" = 0 || exit 3; sleep 300', keep_on_failure_seconds=60)
    )
    eventually(
        lambda: "Kept" in [event.reason for event in job.events()], "the job has failed and is kept", PATIENCE
    )
    assert job.execute(("sh", "-c", 'test "$MPIJOB_WORKER" = 1'), worker=1) == 0
    job.cancel(grace_period=0)
    state = job.state()
    assert (state.phase, state.ranks[1].exit_code) == (Phase.FAILED, 3)
