"""A node's last word on a pod that somebody removed comes when the job is over: a look waits for it, a moment."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.cluster_objects import BEGIN, Cluster

from mpijob.backends.kubernetes.actions import patches
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.status import job_objects, job_reader
from mpijob.backends.kubernetes.status.job_reader import JobReader
from mpijob.model import JobRef, JobState

REF = JobRef("team-a", "bert")
ENDED = 50
FAILED = "jobset failed due to one or more job failures (first failed job: bert-launcher-0)"


def a_job_without_pods() -> Cluster:
    return Cluster().condition("Failed", reason="FailedJobs", message=FAILED, at=ENDED)


def with_last_word(cluster: Cluster) -> Cluster:
    name = cluster.name_of("launcher", 0)
    return cluster.told("Pod", name, "Killing", "Stopping container node", ENDED, warning=False)


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[JobState, int]]:
    """Return the state that looks at a job tell which is one thing after the other, and how many it took."""

    def of(*clusters: Cluster, seconds_later: float = 0.1) -> tuple[JobState, int]:
        taken = list[Cluster]()

        def objects(*given: object) -> object:
            taken.append(clusters[min(len(taken), len(clusters) - 1)])
            return taken[-1].seen()

        monkeypatch.setattr(
            job_objects, "find", lambda *given: job_objects.Found(resources.TRAINJOB, clusters[0].job)
        )
        monkeypatch.setattr(job_objects, "objects", objects)
        monkeypatch.setattr(JobReader, "served", frozenset[str]())
        monkeypatch.setattr(job_reader, "_SETTLE_SECONDS", 0.3)
        monkeypatch.setattr(patches, "_POLL_SECONDS", 0.01)
        api = SimpleNamespace(now=lambda: BEGIN + ENDED + seconds_later)
        return JobReader(cast("Any", api)).attempt(REF).state, len(taken)

    return of


@pytest.mark.req("SC-005")
def test_a_launcher_whose_removal_is_told_late_is_told(look: Callable[..., tuple[JobState, int]]) -> None:
    state, looks = look(a_job_without_pods(), a_job_without_pods(), with_last_word(a_job_without_pods()))
    assert (state.findings[0].code, looks) == ("LAUNCHER_KILLED", 3)


def test_what_was_told_at_once_is_looked_at_once(look: Callable[..., tuple[JobState, int]]) -> None:
    state, looks = look(with_last_word(a_job_without_pods()))
    assert (state.findings[0].code, looks) == ("LAUNCHER_KILLED", 1)


def test_nobody_waits_for_a_word_on_a_job_that_ended_long_ago(
    look: Callable[..., tuple[JobState, int]],
) -> None:
    state, looks = look(a_job_without_pods(), seconds_later=60.0)
    assert (state.findings[0].code, looks) == ("UNKNOWN", 1)


@pytest.mark.thorough
def test_a_word_that_never_comes_is_not_waited_for_for_ever(
    look: Callable[..., tuple[JobState, int]],
) -> None:
    state, looks = look(a_job_without_pods())
    assert state.findings[0].code == "UNKNOWN"
    assert looks > 2
