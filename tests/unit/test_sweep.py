"""Arrays: every combination, deterministic names, nothing odd let through."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli_support import Cli

from mpijob import MPIJob
from mpijob.client.sweep import expand
from mpijob.errors import InvalidJob

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
