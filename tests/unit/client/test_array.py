"""Arrays: every combination, deterministic names, nothing odd let through."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli_support import Cli

from mpijob import MPIJob
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client.submit.array import expand, newest, submitted
from mpijob.errors import InvalidJob
from mpijob.model import JobRef, JobState, Phase
from mpijob.model.spec.selector import asks_for

JOB = MPIJob(name="bert", command=("train",), env={"SEED": "1"}, labels={"team": "nlp"})


def test_every_combination_becomes_a_job_the_last_value_changing_fastest() -> None:
    jobs = expand(JOB, {"env.LR": [0.1, 0.01], "workers": [2, 4]})
    assert [(job.name, job.env["LR"], job.workers) for job in jobs] == [
        ("bert-0", "0.1", 2),
        ("bert-1", "0.1", 4),
        ("bert-2", "0.01", 2),
        ("bert-3", "0.01", 4),
    ]


def test_what_does_not_vary_stays_and_the_array_is_in_the_labels() -> None:
    job = expand(JOB, {"resources.memory": ["4Gi"]})[0]
    assert (job.env, job.resources.memory, job.resources.cpu) == ({"SEED": "1"}, "4Gi", "1")
    assert job.labels == {"team": "nlp", "mpijob/array": "bert", "mpijob/array-index": "0"}


def test_names_are_padded_so_that_they_sort() -> None:
    names = [job.name for job in expand(JOB, {"env.X": list(range(11))})]
    assert (names[0], names[10], names) == ("bert-00", "bert-10", sorted(names))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "0 jobs"),
        ({"workers": []}, "at least one"),
        ({"workers": "24"}, "list of values"),
        ({"name": ["a", "b"]}, "cannot vary"),
        ({"wrokers": [1]}, "no field 'wrokers'"),
        ({"workers": ["two"]}, "workers"),
        ({"env.A": list(range(100)), "env.B": list(range(100))}, "10000 jobs"),
    ],
)
def test_values_that_make_no_array_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        expand(JOB, values)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("0-3", "env.N=0,1,2,3"),
        ("0-3%2", "env.N=0,1,2,3"),
        ("0-10:5", "env.N=0,5,10"),
        ("1,4-5", "env.N=1,4,5"),
    ],
)
def test_a_range_of_values_is_refused_with_both_spellings(given: str, meant: str) -> None:
    result = Cli()("array", "x", "--workers", "2", "--values", f"env.N={given}", "--", "true")
    assert result.exit_code == 2
    assert f"write {meant} for one job each" in result.stderr
    assert "where the text itself is meant" in result.stderr


def test_a_value_that_looks_like_a_range_is_meant_when_it_is_quoted() -> None:
    cli = Cli()
    cli.ok("array", "x", "--workers", "2", "--values", "env.N='0-3','4-7',2024-01-02", "--", "true")
    found = [cli.json("describe", name)["spec"]["env"]["N"] for name in ("x-0", "x-1", "x-2")]
    assert found == ["0-3", "4-7", "2024-01-02"]


ARRAY = ("array", "study", "--workers", "2")


def test_a_retried_job_of_an_array_does_not_make_it_the_one_that_was_submitted_last() -> None:
    cli = Cli()
    cli.ok(*ARRAY, "--values", "env.LR=1,2,3", "--", "true")
    cli.ok("wait", "-l", "mpijob/array=study")
    cli.ok(*ARRAY, "--values", "env.LR=1,2", "--", "true")
    cli.ok("retry", "study-2")
    told = cli("wait", "-l", "mpijob/array=study", "-o", "name")
    assert sorted(told.stdout.split()) == ["study-0", "study-1"]
    assert "not waiting for 1 jobs of an earlier submission of the array" in told.stderr


def test_other_labels_than_the_array_mean_all_jobs_that_have_them() -> None:
    cli = Cli(MemoryBackend(script=Script(jobs={"study-2": Outcome(hangs=True)})))
    labelled = (*ARRAY, "--label", "team=cv")
    cli.ok(*labelled, "--values", "env.LR=1,2,3", "--", "true")
    cli.ok("wait", "study-0", "study-1")
    cli.ok(*labelled, "--values", "env.LR=1,2", "--", "true")
    told = cli("wait", "-l", "team=cv", "--timeout", "1s")
    assert (told.exit_code, "study-2" in told.stderr, "not waiting for" in told.stderr) == (7, True, False)


def one_of(array_id: str, created: float, name: str) -> JobState:
    labels = {"mpijob/array": "study"} | ({"mpijob/array-id": array_id} if array_id else {})
    return JobState(ref=JobRef("default", name), phase=Phase.RUNNING, labels=labels, created=created)


def test_arrays_with_ids_that_tell_no_time_are_known_by_when_their_jobs_were_made() -> None:
    plain, first, second = one_of("", 0.0, "a"), one_of("ffffffff", 1.0, "b"), one_of("00000001", 2.0, "c")
    assert newest((first, plain, second)) == (second,)
    timed = one_of(submitted(JOB, {"workers": [2]})[0].labels["mpijob/array-id"], 0.5, "d")
    assert newest((timed, plain, second, first)) == (timed,)


@pytest.mark.parametrize(
    ("selector", "named"),
    [
        ("mpijob/array=study", True),
        ("team=cv, mpijob/array == study", True),
        ("mpijob/array in (study, other),team=cv", True),
        ("team=cv", False),
        ("mpijob/array!=study", False),
        ("!mpijob/array", False),
        ("mpijob/array", False),
        ("mpijob/array-index=2", False),
    ],
)
def test_a_selector_asks_for_an_array_where_it_names_one(selector: str, named: bool) -> None:
    assert asks_for(selector, "mpijob/array") is named
