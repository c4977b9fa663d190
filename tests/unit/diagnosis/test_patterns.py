"""Patterns over many jobs: which causes make jobs fail, how often, and on which machine."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli_support import Cli

from mpijob import Client, JobState, MPIJob, Phase
from mpijob.backends.memory import MemoryBackend
from mpijob.diagnosis import patterns
from mpijob.errors import Finding
from mpijob.model import JobRef, WorkerState

NOW = 1_700_000_000.0
pytestmark = pytest.mark.req("C-fleet")


def ended(name: str, code: str = "", ago: float = 60.0, namespace: str = "x", **fields: Any) -> JobState:
    """Return a job that ended: with a cause it failed, without one it succeeded."""
    node = fields.pop("node", "")
    return JobState(
        ref=JobRef(namespace, name, name),
        phase=Phase.FAILED if code else Phase.SUCCEEDED,
        findings=(Finding(code, f"{name} failed", "pull another image", worker=0),) if code else (),
        workers=(WorkerState(0, "w0", Phase.FAILED, node=node),),
        finished=NOW - ago,
        **fields,
    )


def find(*states: JobState, since: float = 3600.0, least: int = 2) -> patterns.Fleet:
    return patterns.find(states, since=NOW - since, until=NOW, least=least)


def test_jobs_that_failed_alike_in_a_namespace_are_one_sentence() -> None:
    fleet = find(
        *(ended(f"pull-{n}", "IMAGE_PULL", 60.0 + n, owner="ann" if n else "bob") for n in range(3)),
        ended("other", "IMAGE_PULL", namespace="y"),
        ended("fine"),
    )
    assert fleet.message == "4 of 5 jobs that ended in the last hour failed"
    (found,) = fleet.patterns
    assert found.message == "3 jobs failed in the last hour with IMAGE_PULL in namespace x"
    assert (found.count, found.owners, fleet.single) == (3, ("ann", "bob"), 1)
    assert found.jobs == ("x/pull-0", "x/pull-1", "x/pull-2")
    assert (found.example, found.hint) == ("pull-0 failed", "pull another image")


def test_only_jobs_that_ended_in_the_time_count() -> None:
    old = [ended(f"old-{n}", "HANG", ago=7200.0) for n in range(5)]
    runs = JobState(ref=JobRef("x", "runs", "r"), phase=Phase.RUNNING)
    assert find(*old, runs).message == "no job ended in the last hour"
    assert find(*old, since=86400.0).patterns[0].count == 5


def test_the_most_frequent_cause_comes_first_and_single_ones_only_when_asked_for() -> None:
    jobs = (
        *(ended(f"a{n}", "HANG") for n in range(2)),
        *(ended(f"b{n}", "OOM_KILLED") for n in range(3)),
        ended("c", "SEGFAULT"),
    )
    assert [one.code for one in find(*jobs).patterns] == ["OOM_KILLED", "HANG"]
    assert [one.code for one in find(*jobs, least=1).patterns] == ["OOM_KILLED", "HANG", "SEGFAULT"]


def test_a_machine_on_which_failures_gather_is_named() -> None:
    bad = [ended(f"bad-{n}", f"CODE_{n}", node="gpu-7") for n in range(3)]
    good = [ended(f"good-{n}", node="gpu-1") for n in range(3)]
    (found,) = find(*bad, *good).patterns
    assert found.message == "3 of 3 jobs that failed in the last hour failed on machine gpu-7"
    assert find(*bad).patterns == ()  # the only machine there is says nothing
    spread = [ended(f"bad-{n}", f"CODE_{n}", node=f"gpu-{n}") for n in range(3)]
    assert find(*spread).patterns == ()


def test_a_failure_without_a_cause_is_counted_as_unknown() -> None:
    blank = [JobState(ref=JobRef("x", f"j{n}", f"j{n}"), phase=Phase.FAILED, finished=NOW) for n in range(2)]
    assert find(*blank).patterns[0].code == "UNKNOWN"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3600, "the last hour"),
        (1800, "the last 30 minutes"),
        (5400, "the last 90 minutes"),
        (86400, "the last day"),
        (172800, "the last 48 hours"),
        (7 * 86400, "the last 7 days"),
        (20, "the last 20 seconds"),
    ],
)
def test_a_time_is_told_as_people_say_it(seconds: float, words: str) -> None:
    assert find(since=seconds).message == f"no job ended in {words}"


@pytest.fixture
def place() -> MemoryBackend:
    backend = MemoryBackend()
    with Client(backend) as client:
        for name, namespace in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "x")):
            command = ("true",) if name == "d" else ("false",)
            client.submit(MPIJob(name=name, namespace=namespace, workers=2, command=command)).wait(60)
    return backend


def test_the_sdk_looks_at_one_namespace_or_at_all(place: MemoryBackend) -> None:
    with Client(place) as client:
        fleet = client.patterns(until=place.now, namespace="x")
        assert fleet.message == "2 of 3 jobs that ended in the last hour failed"
        everywhere = client.patterns(until=place.now, all_namespaces=True, least=1)
        assert sorted(one.namespace for one in everywhere.patterns) == ["x", "y"]


def test_the_command_prints_sentences_or_json(place: MemoryBackend) -> None:
    cli = Cli(place)
    assert "2 jobs failed in the last hour with" in cli.ok("patterns", "-n", "x")
    assert cli.json("patterns", "-n", "x")["failed"] == 2


def test_the_page_counts_as_the_command_does() -> None:
    from mpijob.api.live import overview_rows, rows
    from mpijob.model import Amounts, Facts

    jobs = (
        *(ended(f"pull-{n}", "IMAGE_PULL", 60.0 + n) for n in range(3)),
        ended("other", "IMAGE_PULL", namespace="y"),
        ended("fine"),
    )
    facts = Facts(place="here", capacity=Amounts(), free=Amounts())
    told = overview_rows.overview(map(rows.row, jobs), (), facts, "", now=NOW).patterns
    found = find(*jobs, least=1).patterns
    assert [(one.cause, one.newest.namespace, one.jobs) for one in told] == [
        (one.code, one.namespace, one.count) for one in found
    ]
    assert told[0].newest.name == "pull-0"
