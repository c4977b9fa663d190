"""Earlier runs of a name and earlier attempts of a run: they stay, and every verb that reads finds them."""

from __future__ import annotations

import pytest

from mpijob import Client, Phase
from mpijob.errors import InvalidJob, NotFound
from mpijob.model import JobState, Retry

from .builders import PATIENCE, a_job, finished, says_hello

AGAIN = Retry(limit=1, backoff_seconds=0.1)


def numbers(runs: tuple[JobState, ...]) -> list[tuple[int, str, Phase]]:
    return [(run.run, run.ref.uid, run.phase) for run in runs]


def text_of(client: Client, name: str, **wanted: int) -> set[str]:
    return {line.text.decode() for line in client.logs(name, **wanted)}  # type: ignore[arg-type]  # a number each


@pytest.mark.req("B-11", "B-retry")
def test_a_retry_leaves_the_earlier_run_readable_by_its_number_and_by_its_uid(client: Client) -> None:
    first = finished(client, a_job("r", "echo in $MPIJOB_ATTEMPT; exit 3", description="as it was"))
    second = client.retry("r")
    second.wait(PATIENCE)
    assert numbers(client.runs("r")) == [
        (2, second.ref.uid, Phase.FAILED),
        (1, first.ref.uid, Phase.FAILED),
    ]
    for address in ("r@1", first.ref.uid):
        assert client.state(address).ref == first.ref
        assert client.spec(address).description == "as it was"
        assert text_of(client, address) >= {"in 1"}
        assert client.diagnose(address).job == "r"
        reasons = [event.reason for event in client.events(address)]
        assert [one for one in reasons if one in set(Phase)][
            -1
        ] == "Failed"  # Kueue and others have words, too
        assert "description: as it was" in client.export(address)
    assert client.ref("r@2") == second.ref
    compared = client.compare("r@1", "r")
    assert [job.ref.uid for job in compared.jobs] == [first.ref.uid, second.ref.uid]
    assert [job.run for job in compared.jobs] == [1, 2]


@pytest.mark.req("B-11")
def test_a_resubmission_under_the_same_name_is_the_next_run_and_the_name_means_it(client: Client) -> None:
    finished(client, says_hello("again", description="one"))
    finished(client, says_hello("again", description="two", workers=1))
    third = finished(client, says_hello("again", description="three"))
    assert [run.run for run in client.runs("again")] == [3, 2, 1]
    assert [client.spec(f"again@{run}").description for run in (1, 2, 3)] == ["one", "two", "three"]
    assert client.state("again").ref == third.ref
    assert [state.ref.name for state in client.list().items] == ["again"]
    assert [state.run for state in client.list(runs=True).items] == [3, 2, 1]


@pytest.mark.req("B-11", "PMV-003")
def test_each_attempt_of_a_run_is_told_by_itself(client: Client) -> None:
    job = client.submit(a_job("tries", "echo try $MPIJOB_ATTEMPT; exit 3", retry=AGAIN))
    with client.reconciling(job.ref):
        job.wait(PATIENCE)
    first, last = client.attempts("tries")
    assert [(one.attempt, one.phase) for one in (first, last)] == [(1, Phase.FAILED), (2, Phase.FAILED)]
    assert first.started is not None
    assert last.started is not None
    assert first.started < last.started
    assert client.state("tries", attempt=1) == first
    assert client.why("tries", attempt=1)[0].code == first.findings[0].code
    assert client.diagnose("tries", attempt=1).job == "tries"
    assert text_of(client, "tries", attempt=1) >= {"try 1"}
    assert "try 2" not in text_of(client, "tries", attempt=1)
    assert {event.attempt for event in client.events("tries", attempt=1)} == {1}
    assert {event.attempt for event in client.events("tries")} == {1, 2}
    assert {sample.attempt for sample in client.metrics("tries", attempt=1)} <= {1}
    compared = client.compare("tries", attempts=(1, 2))
    assert [(one.attempt, one.phase, one.ref) for one in compared.jobs] == [
        (1, Phase.FAILED, job.ref),
        (2, Phase.FAILED, job.ref),
    ]
    assert [one.attempt for one in client.attempt_accounts("tries")] == [1, 2]


def test_what_there_is_not_is_refused_with_what_there_is(client: Client) -> None:
    finished(client, says_hello("one"))
    with pytest.raises(NotFound, match="has no run 2; there are: 1"):
        client.state("one@2")
    with pytest.raises(NotFound, match="has no attempt 2: it has 1"):
        client.state("one", attempt=2)
    for wrong in ("one@", "one@x", "one@-1", "@1", "one@1.5", "one@99999999999"):
        with pytest.raises(InvalidJob, match="is not the run of a job"):
            client.state(wrong)
    for unknown in ("nobody@1", "0123456789abcdef", "0123456789abcdef0123456789abcdef"):
        with pytest.raises(NotFound):
            client.state(unknown)
    with pytest.raises(InvalidJob, match="1 attempt numbers and 1 jobs"):
        client.compare("one", attempts=(1, 1))


def test_an_earlier_run_is_deleted_alone_and_the_others_keep_their_numbers(client: Client) -> None:
    for _ in range(3):
        finished(client, says_hello("kept"))
    client.delete("kept@2")
    there = {run.run for run in client.runs("kept") if run.deleted is None}
    assert there == {1, 3}
    assert client.state("kept").run == 3


def test_an_earlier_run_is_submitted_again_as_the_newest(client: Client) -> None:
    finished(client, says_hello("back", description="good"))
    finished(client, says_hello("back", description="bad"))
    client.retry("back@1").wait(PATIENCE)
    runs = client.runs("back")
    assert [run.description for run in runs] == ["good", "bad", "good"]
    assert len({run.ref.uid for run in runs}) == 3
