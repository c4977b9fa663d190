"""Recurring jobs: when they are due on which clock, what happens when one is still there, what a cluster is told."""

from __future__ import annotations

import json
import threading
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli_support import Cli

from mpijob import Client, MPIJob
from mpijob.backends.memory import MemoryBackend
from mpijob.backends.memory.schedules import MemorySchedules
from mpijob.backends.recurring.schedule_files import ScheduleFiles
from mpijob.client.services.cron import CronDaemon
from mpijob.client.services.schedules import own_zone
from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes import cronjob
from mpijob.model.spec.schedule import LABEL, Overlap, Recurrence, Schedule
from mpijob.observation.state import cron
from mpijob.settings import Settings

BERLIN = "Europe/Berlin"
HANGS = {"memory.mpijob/outcome": "hangs"}


def a_schedule(when: str = "30 2 * * *", **fields: Any) -> Schedule:
    labels = fields.pop("labels", {})
    job = MPIJob(name="nightly", workers=2, command=("true",), labels=labels)
    return Schedule(**{"name": "nightly", "when": when, "job": job, **fields})


def at(text: str, zone: str = "Etc/UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.req("C-cron")
def test_a_schedule_counts_on_the_wall_clock_of_its_zone() -> None:
    berlin, utc = a_schedule(time_zone=BERLIN), a_schedule()
    assert cron.following(berlin, at("2026-07-01T00:00")) == (at("2026-07-01T00:30"),)
    assert cron.following(utc, at("2026-07-01T00:00")) == (at("2026-07-01T02:30"),)


@pytest.mark.req("C-cron")
def test_a_night_without_half_past_two_and_one_with_two_of_them_start_one_job_each() -> None:
    berlin = a_schedule(time_zone=BERLIN)
    spring = cron.following(berlin, at("2026-03-28T12:00"), 2)
    assert [datetime.fromtimestamp(one, ZoneInfo(BERLIN)).isoformat() for one in spring] == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    autumn = cron.following(berlin, at("2026-10-24T12:00"), 2)
    assert [datetime.fromtimestamp(one, ZoneInfo(BERLIN)).day for one in autumn] == [25, 26]


@pytest.mark.req("C-cron")
def test_only_the_newest_of_several_missed_starts_is_made_up_for() -> None:
    hourly = a_schedule("@hourly")
    due = cron.due(hourly, at("2026-07-01T00:00"), at("2026-07-01T05:20"))
    assert due == (at("2026-07-01T05:00"), 4)
    assert cron.due(hourly, at("2026-07-01T05:00"), at("2026-07-01T05:59")) is None
    assert cron.due(hourly, at("2026-07-01T04:59"), at("2026-07-01T05:00")) == (
        at("2026-07-01T05:00"),
        0,
    )
    ages = cron.due(a_schedule("* * * * *"), at("2020-01-01T00:00"), at("2026-07-01T00:00"))
    assert ages is not None
    assert ages.missed == 100


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"when": "30 2 * *"}, "is not a cron expression that all engines support"),
        ({"when": "0 30 2 * * *"}, "is not a cron expression"),
        ({"when": "0 0 L * *"}, "is not a cron expression"),
        ({"when": "0 0 * * 1#2"}, "is not a cron expression"),
        ({"when": "99 2 * * *"}, "the minute cannot be read"),
        ({"when": "0 0 31 2 *"}, "the day-of-month cannot be read"),
        ({"time_zone": "Europe/Nowhere"}, "there is no time zone 'Europe/Nowhere'"),
        ({"time_zone": "../../etc/passwd"}, "there is no time zone"),
        ({"start_within_seconds": 1.0}, "too short as the delay"),
        ({"name": "Nightly"}, "cannot be the name of a schedule"),
        ({"name": "n" * 37}, "cannot be the name of a schedule"),
    ],
)
def test_what_cannot_recur_is_refused_with_the_field(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidJob, match=said) as refused:
        cron.refuse(a_schedule(**fields))
    assert refused.value.findings[0].field == next(iter(fields))
    assert refused.value.hint


# -- what happens when it is due -----------------------------------------------------------------------
class Clockwork:
    """A client in memory, its schedules, and a clock that the test sets."""

    def __init__(self, schedule: Schedule, since: str) -> None:
        self.client = Client(MemoryBackend())
        self.kept = MemorySchedules()
        self.kept.put(Recurrence(schedule, at(since)))
        self.now = at(since)
        self.alarm = CronDaemon(self.client, self.kept, lambda: self.now)

    def until(self, moment: str) -> str:
        """Let the clock look at that moment and return what it told last."""
        self.now = at(moment)
        self.alarm.round()
        return self.kept.all()[0].told

    def jobs(self) -> list[tuple[str, str]]:
        return [
            (state.ref.name, state.phase.value) for state in self.client.jobs(selector=f"{LABEL}=nightly")
        ]


@pytest.mark.req("C-cron")
def test_a_job_is_started_once_when_it_is_due_and_never_before() -> None:
    work = Clockwork(a_schedule("0 * * * *"), "2026-07-01T00:10")
    assert work.until("2026-07-01T00:59") == ""
    name = f"nightly-{int(at('2026-07-01T01:00')) // 60}"
    assert work.until("2026-07-01T01:00") == f"job '{name}' was started"
    assert work.until("2026-07-01T01:01") == f"job '{name}' was started"
    assert [name for name, _ in work.jobs()] == [name]


class Unattended(ScheduleFiles):
    """Schedules of a home that no clock keeps the time of."""

    def ensure_scheduler(self) -> None:
        """The test is the clock."""


@pytest.mark.thorough
@pytest.mark.parametrize("act", ["pause", "delete"])
@pytest.mark.parametrize("engine", ["memory", "local"])
def test_what_a_user_does_while_the_clock_writes_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, act: str
) -> None:
    here = MemorySchedules()
    kept, theirs = (
        (here, here) if engine == "memory" else (Unattended(Settings(home=str(tmp_path))) for _ in "ab")
    )
    kept.put(Recurrence(a_schedule("* * * * *"), at("2026-07-01T00:00")))
    user = Client(MemoryBackend()).schedules
    user._kept = theirs
    at_once = threading.Thread(target=getattr(user, act), args=("nightly",))
    read = kept.all

    def read_while_they_act(namespace: str = "") -> tuple[Recurrence, ...]:
        found = read(namespace)
        if namespace:  # the clock is about to write down what came of it
            at_once.start()
            at_once.join(0.2)
        return found

    monkeypatch.setattr(kept, "all", read_while_they_act)
    CronDaemon(Client(MemoryBackend()), kept, lambda: at("2026-07-01T00:01")).round()
    at_once.join(20)
    assert [one.schedule.paused for one in read()] == ([True] if act == "pause" else [])


@pytest.mark.req("C-cron")
@pytest.mark.parametrize(
    ("overlap", "phases", "said"),
    [
        (Overlap.FORBID, ["Running"], "was skipped: job 'nightly-"),
        (Overlap.ALLOW, ["Running", "Running"], "was started"),
        (Overlap.REPLACE, ["Running", "Cancelled"], "was started in place of 'nightly-"),
    ],
)
def test_the_overlap_decides_what_happens_to_two_jobs(overlap: Overlap, phases: list[str], said: str) -> None:
    work = Clockwork(a_schedule("0 * * * *", overlap=overlap, labels=HANGS), "2026-07-01T00:10")
    work.until("2026-07-01T01:00")
    first = work.jobs()[0][0]
    work.client.wait(first, 60, ["Running"])  # type: ignore[list-item]  # phases by their words
    told = work.until("2026-07-01T02:00")
    assert said in told
    second = work.jobs()[0][0]
    if len(phases) == 2:
        work.client.wait(second, 60, ["Running"])  # type: ignore[list-item]  # as above
    assert [phase for _, phase in work.jobs()] == phases


@pytest.mark.req("C-cron")
def test_a_start_that_is_missed_by_too_much_is_told_and_left_out() -> None:
    work = Clockwork(a_schedule("0 * * * *", start_within_seconds=600.0), "2026-07-01T00:10")
    assert work.until("2026-07-01T03:30").startswith("missed by 1800 s, beyond the limit of 600 s (and 2 ")
    assert work.jobs() == []
    assert "was started" in work.until("2026-07-01T04:05")


@pytest.mark.req("C-cron")
def test_a_job_that_no_longer_fits_is_told_at_its_hour_and_the_clock_goes_on() -> None:
    wanted = a_schedule("0 * * * *")
    work = Clockwork(wanted.replace(job=wanted.job.replace(workers=5000)), "2026-07-01T00:10")
    assert work.until("2026-07-01T01:00").startswith("could not be started: ")
    assert work.alarm.round() == pytest.approx(60.0)


def test_a_clock_that_was_set_back_does_not_stop_a_schedule() -> None:
    work = Clockwork(a_schedule("0 * * * *"), "2026-07-01T12:10")
    assert work.until("2026-07-01T03:10") == ""
    assert "was started" in work.until("2026-07-01T04:00")


def test_a_clock_without_schedules_ends() -> None:
    assert CronDaemon(Client(MemoryBackend()), MemorySchedules()).round() is None


# -- the command line ----------------------------------------------------------------------------------
@pytest.mark.req("C-cron")
def test_a_schedule_is_made_listed_paused_fired_and_deleted_from_the_command_line() -> None:
    cli = Cli()
    words = ("--workers", "2", "--when", "30 2 * * *", "--time-zone", BERLIN, "--", "true")
    assert "schedule nightly: next " in cli.ok("schedule", "create", "nightly", *words)
    assert cli("schedule", "create", "nightly", *words).exit_code == 5
    (listed,) = cli.json("schedule", "list")
    assert listed["schedule"]["job"]["command"] == ["true"]
    assert listed["next"] > 0
    assert "Europe/Berlin" in cli.ok("schedule", "list")
    cli.ok("schedule", "pause", "nightly")
    assert "paused" in cli.ok("schedule", "list")
    cli.ok("schedule", "resume", "nightly")
    assert "was started" in cli.ok("schedule", "fire", "nightly")
    assert "command:" in cli.ok("schedule", "show", "nightly")
    cli.ok("schedule", "delete", "nightly")
    assert cli("schedule", "delete", "nightly").exit_code == 3
    assert cli.json("list")["items"][0]["labels"][LABEL] == "nightly"


@pytest.mark.security
@pytest.mark.req("D-sanitize")
def test_a_schedule_is_shown_without_the_secrets_of_its_job() -> None:
    cli = Cli()
    env = ("--env", "API_TOKEN=canary-named", "--env", "CONN=postgresql://bob:canary-address@db/x")
    words = ("--workers", "2", "--when", "@daily", *env)
    shown = [
        cli.ok(
            "schedule", "create", "nightly", *words, "-o", "json", "--", "true", "--password", "canary-arg"
        )
    ]
    shown += [cli.ok("schedule", "show", "nightly"), cli.ok("schedule", "list", "-o", "json")]
    assert [("canary" in one, "***" in one) for one in shown] == [(False, True)] * 3
    assert cli.connect().schedules.get("nightly").schedule.job.env["API_TOKEN"] == "canary-named"


def test_a_schedule_with_a_job_that_could_never_run_is_refused_when_it_is_made() -> None:
    refused = Cli()("schedule", "create", "nightly", "--workers", "0", "--when", "@daily", "--", "true")
    assert refused.exit_code == 2
    assert "workers" in refused.stderr


# -- a cluster's words ---------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.req("C-cron")
@given(st.text(max_size=50), st.sampled_from(Overlap), st.booleans())
def test_a_cronjob_reads_back_as_the_schedule_that_it_was_written_from(
    word: str, overlap: Overlap, paused: bool
) -> None:
    job = MPIJob(name="nightly", workers=2, command=("sh", "-c", f"echo $(HOME) $$ {word}"))
    wanted = a_schedule(overlap=overlap, paused=paused).replace(job=job)
    written = cronjob.write(wanted, "image", "30 2 * * *", 0.0)
    assert cronjob.read(json.loads(json.dumps(written))) == wanted


@pytest.mark.security
def test_the_pods_of_a_schedule_read_no_secrets_and_enter_no_pod() -> None:
    _, role, binding = cronjob.rights("team-a")
    assert binding["roleRef"]["kind"] == "Role"
    for rule in role["rules"]:
        assert not {"secrets", "pods/exec", "*"} & {*rule["resources"], *rule["verbs"], *rule["apiGroups"]}
    pod = cronjob.write(a_schedule(), "image", "@daily", 0.0)["spec"]["jobTemplate"]["spec"]["template"][
        "spec"
    ]
    held = pod["containers"][0]["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert held["readOnlyRootFilesystem"]
    assert held["capabilities"] == {"drop": ["ALL"]}


def test_what_is_too_large_for_a_cronjob_is_refused() -> None:
    job = MPIJob(name="nightly", workers=2, command=("true",), code={"files": {"data": "x" * 100_001}})  # type: ignore[arg-type]  # as users write it
    with pytest.raises(InvalidJob, match="is 100"):
        cronjob.write(a_schedule().replace(job=job), "image", "@daily", 0.0)


def test_what_was_due_while_a_schedule_was_paused_is_left_out_by_its_pods() -> None:
    client = Client(MemoryBackend())
    told = client.schedules.fire(a_schedule(), "nightly-100", since=200 * 60.0)
    assert told == "job 'nightly-100' was skipped: it was due while the schedule was paused"
    assert [*client.jobs()] == []


@pytest.mark.parametrize(
    ("named", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        (":/no/such/file", "Etc/UTC"),
    ],
)
def test_the_zone_of_this_machine_has_a_name_however_it_is_given(
    monkeypatch: pytest.MonkeyPatch, named: str, zone: str
) -> None:
    monkeypatch.setenv("TZ", named)
    assert own_zone() == zone
