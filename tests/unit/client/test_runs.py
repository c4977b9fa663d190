"""`NAME@RUN`: how jobs of one name are counted, and what a target may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob import Client, MPIJob
from mpijob.backends.memory import MemoryBackend
from mpijob.client import runs
from mpijob.client.submit import pipeline
from mpijob.errors import InvalidJob, NotFound
from mpijob.formats.kubernetes.metadata import identity, well_known
from mpijob.model import JobRef, JobState, Phase, Retry
from mpijob.settings import Settings


def a_run(uid: str, created: float, run: int = 0, owner: str = "") -> JobState:
    return JobState(ref=JobRef("cv", "train", uid), phase=Phase.FAILED, created=created, run=run, owner=owner)


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ([], []),
        ([(1.0, 0), (2.0, 0)], [1, 2]),  # of releases that gave no numbers
        ([(1.0, 1), (2.0, 2), (3.0, 3)], [1, 2, 3]),
        ([(2.0, 4), (3.0, 5)], [4, 5]),  # the first ones are forgotten
        ([(1.0, 1), (2.0, 1)], [1, 2]),  # deleted without a record, then counted anew
        ([(1.0, 9), (2.0, 2), (3.0, 0)], [9, 10, 11]),  # somebody wrote a number of their own
    ],
)
def test_runs_have_rising_numbers_whatever_was_written_down(
    given: list[tuple[float, int]], numbers: list[int]
) -> None:
    found = runs.numbered(a_run(f"u{at}", created, run) for at, (created, run) in enumerate(given))
    assert [state.run for state in found] == numbers


@given(st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 10**9))))
def test_no_two_runs_have_one_number(given: list[tuple[float, int]]) -> None:
    found = runs.numbered(a_run(f"u{at}", created, run) for at, (created, run) in enumerate(given))
    assert [one.run for one in found] == sorted({one.run for one in found})


@pytest.mark.parametrize("name", ["train", "train-2", "a1b2", "0123456789abcde"])
def test_a_plain_name_is_taken_as_it_is_without_asking_anybody(name: str) -> None:
    client = Client(MemoryBackend())
    client.__dict__["_records"] = None  # whoever is asked fails
    assert client.ref(name, "team") == JobRef("team", name)


def test_a_job_may_be_called_like_a_uid() -> None:
    client = Client(MemoryBackend())
    name = "0123456789abcdef"
    client.run(MPIJob(name=name, workers=1, command=("true",)))
    assert client.ref(name) == JobRef("default", name)
    assert client.ref(client.state(name).ref.uid) == client.state(name).ref


def test_runs_of_a_name_that_nobody_has_are_refused() -> None:
    client = Client(MemoryBackend())
    with pytest.raises(NotFound, match="nobody"):
        client.runs("nobody")
    with pytest.raises(InvalidJob, match="is not the run of a job"):
        client.ref("@1")


@pytest.mark.parametrize(
    ("name", "labels", "run"),
    [
        ("train", {}, 1),
        ("train-r2", {}, 2),  # an earlier release wrote no label
        ("train-r2-a3", {}, 2),
        ("train", {well_known.RUN_LABEL: "4"}, 4),
        ("train-r2", {well_known.RUN_LABEL: "many"}, 1),
        ("train", {well_known.RUN_LABEL: "9" * 30}, 1),
        ("train", {well_known.RUN_LABEL: "0"}, 1),
        ("other", {}, 1),
    ],
)
def test_a_cluster_s_object_tells_its_run(name: str, labels: dict[str, str], run: int) -> None:
    assert identity.run_of({"name": name, "labels": {well_known.JOB_LABEL: "train"} | labels}) == run


@pytest.mark.engine
@pytest.mark.req("B-11", "C-history")
def test_a_deleted_run_keeps_its_number_and_is_counted(tmp_path: Path) -> None:
    with Client(settings=Settings(home=str(tmp_path / "home"), oversubscribe=True)) as client:
        job = MPIJob(
            name="train", workers=1, command=("sh", "-c", "exit 3"), retry=Retry(limit=1, backoff_seconds=0.0)
        )
        for _ in range(2):
            pipeline.submit(job, client.backend, max_workers=8)
            client.wait("train", 60)
        client.delete("train@1")
        client.delete("train")
        with pytest.raises(NotFound):
            client.backend.get(JobRef("default", "train"))
        pipeline.submit(job, client.backend, max_workers=8)
        client.wait("train", 60)
        assert [(one.run, one.deleted is None) for one in client.runs("train")] == [
            (3, True),
            (2, False),
            (1, False),
        ]
        assert [one.attempt for one in client.attempts("train@1")] == [1, 2]
        assert client.state("train@1", attempt=1).findings[0].code == "RANK_EXIT"
        assert client.compare("train@1", "train").jobs[0].run == 1
        assert client.compare("train@2", attempts=(1, 2)).jobs[1].attempt == 2
        assert client.attempts("train@1")[0].deleted is not None
