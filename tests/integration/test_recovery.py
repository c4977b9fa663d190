"""Our own processes are killed at every step, machines restart, pids come again: the next command tells the truth."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mpijob import Client, Job, Phase
from mpijob.backends.local import LocalBackend
from mpijob.backends.local.planning.machine import process_identity
from mpijob.backends.local.storage.paths import Home
from mpijob.errors import Conflict
from mpijob.settings import Settings

from . import sight
from .support import PATIENCE, a_job, check_nothing_runs, eventually, running, said, succeeded

pytestmark = pytest.mark.engine

ESCAPES = "setsid sleep 300 & env -i setsid sleep 300 & echo up; sleep 300"
FILLING: dict[str, Any] = {"workers": 2, "resources": {"cpu": "1900m", "memory": "128Mi"}}


@pytest.fixture(params=["namespaces", "process-groups"])
def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, isolation=request.param, oversubscribe=False)


def check_job_is_gone(client: Client, name: str) -> None:
    """Expect the truth about a job whose supervisor was killed, and nothing of it running."""
    state = client.wait(name, 15)
    assert (state.phase, state.reason) == (Phase.FAILED, "SupervisorLost")
    assert state.findings[0].code == "SUPERVISOR_LOST"
    check_nothing_runs(Path(client.settings.home) / "jobs" / state.ref.uid)


@pytest.mark.req("SC-005")
def test_a_killed_supervisor_leaves_nothing_running_and_the_next_job_runs(client: Client) -> None:
    home = Path(client.settings.home)
    job = running(client, a_job("lost", ESCAPES, **FILLING))
    eventually(lambda: len(said(job)) == 2, "both ranks are up")
    waiting = client.submit(a_job("next", **FILLING))
    os.kill(sight.supervisor(home, job.ref.uid), signal.SIGKILL)
    check_job_is_gone(client, "lost")
    assert waiting.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED


def test_a_killed_runner_does_not_take_its_job_with_it(client: Client) -> None:
    home = Path(client.settings.home)
    job = running(client, a_job("orphan", "while [ ! -e go ]; do sleep 0.05; done"))
    os.kill(sight.runner(home, job.ref.uid), signal.SIGKILL)
    assert job.state().phase is Phase.RUNNING
    (home / "jobs" / job.ref.uid / "work" / "go").touch()
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED
    check_nothing_runs(home / "jobs" / job.ref.uid)
    succeeded(client, a_job("next", **FILLING))


def test_runner_and_supervisor_killed_together_leave_nothing_that_outlives_the_next_command(
    client: Client,
) -> None:
    home = Path(client.settings.home)
    job = running(client, a_job("lost", "setsid sleep 300 & echo up; sleep 300"))
    eventually(lambda: len(said(job)) == 2, "both ranks are up")
    supervisor = sight.supervisor(home, job.ref.uid)
    for pid in (sight.parent(supervisor), supervisor):
        os.kill(pid, signal.SIGKILL)
    check_job_is_gone(client, "lost")
    succeeded(client, a_job("next"))


# -- pids that lie ------------------------------------------------------------------------------------
@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


def held(client: Client, uid: str) -> bool:
    with sqlite3.connect(Path(client.settings.home) / "state.db") as db:
        return bool(db.execute("SELECT holds FROM jobs WHERE uid=?", (uid,)).fetchone()[0])


def pretend(client: Client, uid: str, who: str) -> None:
    """Write into the database that this process runs a job, once its real runner is done with it."""
    eventually(lambda: not held(client, uid), "the runner has let go of the job")
    with sqlite3.connect(Path(client.settings.home) / "state.db") as db:
        db.execute(
            "UPDATE jobs SET holds=1, phase='Running', runner=?, supervisor=?,"
            " state=CAST(json_set(CAST(state AS TEXT), '$.phase', 'Running') AS BLOB) WHERE uid=?", (who, who, uid),
        )  # fmt: skip


@pytest.mark.security
@pytest.mark.parametrize("lie", ["stale", "reused", "restarted"])
def test_a_pid_is_believed_only_with_its_start_time_and_boot(
    client: Client, bystander: subprocess.Popen[bytes], lie: str
) -> None:
    job = succeeded(client, a_job("old"))
    pid, start, boot = process_identity(bystander.pid).split(":")
    who = {"stale": f"4194304:{start}:{boot}", "reused": f"{pid}:1:{boot}", "restarted": f"{pid}:{start}:0"}[
        lie
    ]
    pretend(client, job.ref.uid, who)
    state = client.state("old")
    assert (state.phase, state.reason) == (Phase.FAILED, "SupervisorLost")
    assert bystander.poll() is None


# -- submit, killed at every step -----------------------------------------------------------------------
SUBMIT = """
import os, signal, sys
import msgspec
from mpijob import Client, MPIJob
from mpijob.settings import Settings
settings, limit, times = msgspec.json.decode(sys.argv[1], type=Settings), int(sys.argv[2]), int(sys.argv[3])
client, me, steps = Client(settings=settings), os.getpid(), 0
job = MPIJob(name="one", workers=2, command=("sh", "-c", sys.argv[4]), resources={"cpu": "500m", "memory": "128Mi"})

def step(event, args):
    global steps
    steps += os.getpid() == me
    if steps == limit and os.getpid() == me:
        os.kill(me, signal.SIGKILL)

sys.addaudithook(step)
for _ in range(times):
    try:
        client.submit(job)
        print("submitted", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
print(steps)
"""


def submit(
    settings: Settings, limit: int = -1, times: int = 1, script: str = "true"
) -> subprocess.Popen[str]:
    words = [
        sys.executable,
        "-c",
        SUBMIT,
        msgspec.json.encode(settings).decode(),
        str(limit),
        str(times),
        script,
    ]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def steps_of_a_submit(settings: Settings) -> int:
    with submit(settings) as process:
        return int(process.communicate()[0].split()[-1])


def test_submit_killed_at_any_step_leaves_no_job_or_one_whole_job(settings: Settings, tmp_path: Path) -> None:
    steps = steps_of_a_submit(msgspec.structs.replace(settings, home=str(tmp_path / "counted")))
    whole = killed = 0
    for limit in sorted({*range(1, steps, max(1, steps // 8)), *range(steps - 8, steps + 1)}):
        mine = msgspec.structs.replace(settings, home=str(tmp_path / f"h{limit}"))
        with submit(mine, limit) as process:
            process.communicate()
        assert process.returncode in (0, -signal.SIGKILL)
        killed += process.returncode != 0
        with Client(LocalBackend(mine), settings=mine) as client:
            known = client.list().total
            if known == 0:
                client.submit(a_job("one"))
            whole += known
            assert client.wait("one", PATIENCE).phase is Phase.SUCCEEDED
            assert client.list().total == 1
    assert whole > 0
    assert killed > 8  # the last steps are not always made: a runner may have taken the job already


def test_of_100_identical_submits_from_four_processes_one_is_a_job(client: Client) -> None:
    crowd = [submit(client.settings, times=25, script="sleep 300") for _ in range(4)]
    said = [word for process in crowd for word in process.communicate()[0].split()[:-1]]
    assert sorted(set(said)) == [Conflict.__name__, "submitted"]
    assert (said.count("submitted"), len(said)) == (1, 100)
    assert client.list().total == 1


# -- a runner that dies as it is rung for ---------------------------------------------------------------
def its_log(job: Job) -> None:
    assert [line.text for line in job.logs(follow=True)] == [b"here"] * 2


def its_events(job: Job) -> None:
    assert [event.reason for event in job.events(follow=True)][-1] == "Succeeded"


def all_jobs(job: Job) -> None:
    assert next(state for state in job.client.watch() if state.phase.final).phase is Phase.SUCCEEDED


@pytest.mark.timeout(60)
@pytest.mark.req("SC-005")
@pytest.mark.parametrize("follow", [its_log, its_events, all_jobs])
def test_a_job_whose_runner_dies_as_it_is_rung_for_is_started_for_whoever_follows(
    client: Client, follow: Callable[[Job], None]
) -> None:
    job = submitted_to_the_dead(client)
    assert [state.phase for state in client.list().items] == [Phase.QUEUED]
    follow(job)


def submitted_to_the_dead(client: Client) -> Job:
    """Return a job that rang a bell which nobody heard: as long as a killed runner holds it, it rings."""
    home = Home(client.settings.home)
    home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.mkfifo(home.wakeup_pipe, 0o600)
    bell = os.open(home.wakeup_pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        return client.submit(a_job("unheard", "echo here"))
    finally:
        os.close(bell)
