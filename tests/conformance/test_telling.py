"""Lists, pages, selectors, watches, logs, events, samples."""

from __future__ import annotations

import itertools

import pytest

from mpijob import Client, Phase
from mpijob.errors import Conflict, InvalidJob
from mpijob.model import Role

from .builders import PATIENCE, a_job, fails_on_worker_1, finished, place, running, runs_long, says_hello


def test_the_list_is_newest_first_and_comes_in_pages(client: Client) -> None:
    for index in range(5):
        client.submit(a_job(f"job-{index}"))
    first = client.list(limit=2)
    second = client.list(limit=2, after=first.after)
    last = client.list(limit=2, after=second.after)
    names = [[state.ref.name for state in page.items] for page in (first, second, last)]
    assert names == [["job-4", "job-3"], ["job-2", "job-1"], ["job-0"]]
    assert (first.total, last.after) == (5, "")
    assert [state.ref.name for state in client.jobs()] == ["job-4", "job-3", "job-2", "job-1", "job-0"]


@pytest.mark.parametrize("after", ["abc", "-1", "9" * 23])
def test_what_is_no_place_in_a_list_is_refused(client: Client, after: str) -> None:
    with pytest.raises(InvalidJob, match=f"'{after}' is not a valid continue token"):
        client.list(after=after)
    with pytest.raises(InvalidJob, match="is not a valid continue token"):
        client.list(after=after, selector="team=cv")


def test_selectors_choose_by_labels(client: Client) -> None:
    client.submit(a_job("a", labels={"team": "cv", "tier": "test"}))
    client.submit(a_job("b", labels={"team": "cv"}))
    client.submit(a_job("c", labels={"team": "nlp"}))
    client.submit(a_job("d"))
    chosen = {
        "team=cv": ["a", "b"],
        "team!=cv": ["c", "d"],
        "team=cv,tier!=test": ["b"],
        "team in (nlp, cv)": ["a", "b", "c"],
        "team notin (cv)": ["c", "d"],
        "!team": ["d"],
        "tier": ["a"],
    }
    for selector, names in chosen.items():
        found = sorted(state.ref.name for state in client.list(selector=selector).items)
        assert (selector, found) == (selector, names)


def test_a_selector_that_is_none_is_refused(client: Client) -> None:
    client.submit(a_job("a"))
    with pytest.raises(InvalidJob, match="selector"):
        client.list(selector="team=(")


def test_lists_filter_by_phase_owner_queue_and_text(client: Client) -> None:
    finished(client, says_hello(owner="jane", queue=place.queue or "gold"))
    running(client, runs_long())
    assert [state.ref.name for state in client.list(phases=["Running"]).items] == ["long"]
    assert [state.ref.name for state in client.list(owner="jane").items] == ["hello"]
    assert "hello" in [state.ref.name for state in client.list(queue=place.queue or "gold").items]
    assert client.list(queue="silver").items == ()
    assert [state.ref.name for state in client.list(text="ell").items] == ["hello"]
    assert [state.ref.name for state in client.list(text="ELL").items] == ["hello"]


def test_a_list_is_about_one_namespace_or_all(client: Client) -> None:
    client.submit(a_job("a", namespace=place.namespaces[0]))
    client.submit(a_job("b", namespace=place.namespaces[1]))
    assert [state.ref.name for state in client.list(namespace=place.namespaces[0]).items] == ["a"]
    everywhere = client.list(all_namespaces=True, limit=1000).items
    assert sorted(state.ref.name for state in everywhere if state.ref.namespace in place.namespaces) == [
        "a",
        "b",
    ]


@pytest.mark.req("B-watch", "FR-020")
def test_a_watch_shows_what_is_there_and_then_each_change(client: Client) -> None:
    client.submit(says_hello())
    phases = []
    for state in client.watch(names=["hello"]):
        phases.append(state.phase)
        if state.phase.final:
            break
    assert phases[-1] is Phase.SUCCEEDED
    assert len(phases) > 1


@pytest.mark.req("FR-CLI-003", "FR-021", "SC-004")
def test_logs_of_all_ranks_are_merged_in_time_order_with_who_said_it(client: Client) -> None:
    job = finished(client, says_hello(slots=2))
    lines = [line for line in job.logs() if line.role is Role.RANK]
    assert sorted(line.source for line in lines) == ["Rank-0", "Rank-1", "Rank-2", "Rank-3"]
    assert [line.time for line in lines] == sorted(line.time for line in lines)
    assert {line.rank: line.text for line in lines}[3] == b"hello from 3 of 4"
    assert {line.rank: line.worker for line in lines} == {0: 0, 1: 0, 2: 1, 3: 1}


def test_logs_are_filtered_by_rank_worker_pattern_and_tail(client: Client) -> None:
    job = finished(client, says_hello(slots=2))
    assert [line.rank for line in job.logs(ranks=(2,))] == [2]
    assert {line.rank for line in job.logs(workers=(1,), roles=("rank",))} == {2, 3}
    assert [line.text for line in job.logs(regex="from [01] ", ranks=(0, 3))] == [b"hello from 0 of 4"]
    assert len(list(job.logs(tail=1))) == 1


def test_logs_know_the_time(client: Client) -> None:
    job = finished(client, says_hello())
    line = next(iter(job.logs(ranks=0)))
    assert list(job.logs(since=line.time / 1e9 + 3600)) == []
    assert list(job.logs(until=line.time / 1e9 - 3600)) == []
    assert [each.text for each in job.logs(since=line.time / 1e9 - 1, ranks=(0,))] == [line.text]


def test_following_a_log_ends_when_the_job_has_ended_and_all_is_said(client: Client) -> None:
    job = client.submit(a_job("talks", "echo one; sleep 1; echo two"))
    assert [line.text for line in job.logs(follow=True, ranks=(1,))] == [b"one", b"two"]
    assert job.phase is Phase.SUCCEEDED


@pytest.mark.req("FR-OBS-003", "D-events", "C-events")
def test_events_tell_the_story_in_order(client: Client) -> None:
    job = finished(client, says_hello())
    events = list(job.events())
    story = ["Submitted", "GangScheduled", "WorkersReady", "WorldProved", "Running", "Succeeded"]
    assert [event.reason for event in events if event.reason in story] == story
    assert [event.sequence for event in events] == sorted(event.sequence for event in events)
    told = "\n".join(event.message for event in events)
    assert "Launcher discovered 2 workers" in told


def test_following_events_ends_with_the_end_of_the_job(client: Client) -> None:
    job = client.submit(fails_on_worker_1())
    assert [event.reason for event in job.events(follow=True)][-1] == "Failed"


def test_events_tell_of_suspending_resuming_and_cancelling(client: Client) -> None:
    job = running(client, runs_long())
    job.suspend()
    job.resume()
    job.wait(PATIENCE, {Phase.RUNNING})
    job.cancel(grace_period=0)
    told = [event.reason for event in job.events() if event.reason in ("Suspended", "Resumed", "Cancelled")]
    assert told == ["Suspended", "Resumed", "Cancelled"]


@pytest.mark.req("FR-022")
def test_usage_is_measured_for_each_worker(client: Client) -> None:
    job = finished(client, a_job("busy", "sleep 3"))
    assert {sample.worker for sample in job.metrics()} == {0, 1}
    assert all(sample.memory_bytes > 0 for sample in job.metrics())


def test_stacks_show_every_rank_of_a_running_job_and_none_of_one_that_has_ended(client: Client) -> None:
    job = running(client, runs_long(slots=2))
    begun = (line for line in job.logs(follow=True) if line.text == b"begun")
    assert len({line.rank for line in itertools.islice(begun, 4)}) == 4
    report = job.stacks()
    assert [stack.rank for stack in report.stacks] == [0, 1, 2, 3]
    assert [stack.worker for stack in report.stacks] == [0, 0, 1, 1]
    assert all(stack.state for stack in report.stacks)
    assert [stack.rank for stack in job.stacks(ranks=(3,)).stacks] == [3]
    job.cancel(grace_period=0)
    with pytest.raises(Conflict):
        job.stacks()
