"""Recurring jobs on this machine: a real clock process starts real jobs, and is found again after its death."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.support import PATIENCE, a_job, eventually

from mpijob import Client, Phase
from mpijob.backends.recurring.schedule_files import ScheduleFiles
from mpijob.client.services.cron import serve
from mpijob.model.spec.schedule import LABEL, Recurrence, Schedule
from mpijob.settings import Settings

pytestmark = pytest.mark.engine


@pytest.fixture
def kept(settings: Settings) -> Iterator[ScheduleFiles]:
    schedules = ScheduleFiles(settings)
    yield schedules
    for one in schedules.all():
        schedules.remove(one.schedule.namespace, one.schedule.name)
    eventually(lambda: not schedules.wake(), "the clock ends when no schedule is left")


def a_schedule(name: str = "nightly", script: str = "true") -> Schedule:
    """Return a schedule that is due once a year, so that only what was missed is started in a test."""
    return Schedule(name=name, when="@yearly", job=a_job(name, script), time_zone="Etc/UTC")


def clock_of(home: str) -> int:
    """Return the process that keeps the time: the one that holds the lock."""
    path = Path(home) / "schedules" / "clock"

    def holder() -> int:
        if not path.exists():
            return 0
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
                return int(words[4])
        return 0

    return eventually(holder, "somebody keeps the time")


@pytest.mark.req("C-cron")
def test_a_start_that_was_missed_is_made_up_for_by_a_real_job(client: Client, kept: ScheduleFiles) -> None:
    two_years_ago = time.time() - 2 * 366 * 86400
    kept.put(Recurrence(a_schedule(script="echo recurring"), two_years_ago))
    client.schedules.list()  # whoever comes by starts the clock
    told = eventually(lambda: client.schedules.get("nightly").told, "the clock tells of it", PATIENCE)
    assert "was started (and 1 start before it missed" in told
    (state,) = client.jobs(selector=f"{LABEL}=nightly")
    assert client.wait(state.ref, PATIENCE).phase is Phase.SUCCEEDED
    assert {line.text for line in client.logs(state.ref, ranks=(0, 1))} == {b"recurring"}


@pytest.mark.req("C-cron")
def test_a_clock_that_was_killed_is_started_by_the_next_submit(
    client: Client, kept: ScheduleFiles, settings: Settings
) -> None:
    client.schedules.create(a_schedule())
    first = clock_of(settings.home)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not kept.wake(), "it is gone")
    client.submit(a_job("other")).wait(PATIENCE)
    assert clock_of(settings.home) != first


def test_one_process_keeps_the_time_and_a_second_says_so(
    client: Client, kept: ScheduleFiles, settings: Settings
) -> None:
    client.schedules.create(a_schedule())
    clock_of(settings.home)
    assert serve(settings) == "another process already runs the scheduler of these schedules"


def test_a_schedule_takes_the_directory_along_in_which_it_was_made(
    client: Client, kept: ScheduleFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "hello.sh").write_text("echo from here\n")
    monkeypatch.chdir(tmp_path / "code")
    wanted = a_schedule().replace(job=a_job("nightly", command=("sh", "hello.sh")))
    made = client.schedules.create(wanted)
    monkeypatch.chdir("/")
    client.schedules.fire(made.schedule)
    (state,) = client.jobs(selector=f"{LABEL}=nightly")
    client.wait_for_completion(state.ref, PATIENCE)
    assert {line.text for line in client.logs(state.ref, ranks=(0,))} == {b"from here"}
