"""What the clock and a namespace's limits ask of the controller: ends, removals, alarms, transitions."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from tests.unit.backends.kubernetes.test_controller import Versioned, a_controller, finish, laid_out, ref_of
from tests.unit.cluster_objects import BEGIN, at_work, stamp
from tests.unit.kube_node import TEAM

from mpijob.backends.kubernetes.actions import patches
from mpijob.backends.kubernetes.client.api import Document
from mpijob.backends.kubernetes.controller.controller import LIMITS, Controller
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import JobRef, JobState, Phase, Retry, Sample
from mpijob.model.platform.governance import Gang, Idle, NamespaceLimits, Retention
from mpijob.observation.state import limits_policy
from mpijob.observation.state.limits_policy import Progress


# -- limits ------------------------------------------------------------------------------------------
def limited(one: Controller, limits: NamespaceLimits, monkeypatch: pytest.MonkeyPatch) -> Controller:
    document = {"metadata": {"name": TEAM}, "spec": msgspec.to_builtins(limits)}
    cache = one._queue.cache

    def find(source: str, namespace: str, name: str) -> Document | None:
        return document if (source, name) == (LIMITS.plural, TEAM) else None

    monkeypatch.setattr(cache, "find", find)
    return one


@pytest.mark.req("Q-SEC-004")
def test_a_job_beyond_its_namespaces_longest_time_is_ended_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, cluster = Versioned(), at_work()
    path = laid_out(node, cluster)
    one = limited(a_controller(node), NamespaceLimits(max_duration_seconds=60), monkeypatch)
    ended_ones: list[str] = []
    monkeypatch.setattr(
        patches, "end_early", lambda api, found, seen, reason, why, grace: ended_ones.append(why)
    )
    one._reconcile(ref_of(cluster))
    assert len(ended_ones) == 1
    assert f"namespace {TEAM} allows 60 s" in ended_ones[0]
    assert path in node.objects


@pytest.mark.req("E-gang")
def test_a_gang_may_take_no_longer_than_its_namespace_says(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Versioned()
    one = limited(a_controller(node), NamespaceLimits(gang=Gang(timeout_seconds=45)), monkeypatch)
    assert (one._gang_seconds(TEAM), one._gang_seconds("team-nlp")) == (45, math.inf)
    cluster = at_work()
    laid_out(node, cluster)
    ref = ref_of(cluster)
    for age, overdue in ((44, False), (46, True)):
        waits = JobState(ref=ref, phase=Phase.PENDING, created=node.now() - age)
        assert one._reconciler._is_overdue(waits) is overdue
    one._forget(ref)
    assert one._reconciler._timeouts == {}


def test_an_end_that_somebody_noted_and_could_not_bring_about_is_brought_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for noted, wanted in ((3990, 0), (3900, 1)):
        node, cluster = Versioned(), at_work()
        cluster.note(well_known.CANCELLED_ANNOTATION, stamp(noted))
        laid_out(node, cluster)
        finished: list[str] = []
        monkeypatch.setattr(patches, "finish", lambda api, found, seen, to=finished: to.append(found.name))
        a_controller(node)._reconcile(ref_of(cluster))
        assert len(finished) == wanted


def test_a_finished_job_is_removed_when_its_time_is_over_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for keep, left in ((1e9, True), (5.0, False)):
        node, cluster = Versioned(), at_work()
        path = laid_out(node, cluster)
        finish(node, cluster, path, 0)
        limits = NamespaceLimits(retention=Retention(finished_jobs_seconds=keep))
        limited(a_controller(node), limits, monkeypatch)._reconcile(ref_of(cluster))
        assert (path in node.objects) is left
        assert any(reason == "Succeeded" for reason, _ in node.told())


@pytest.mark.req("FR-RES-004")
def test_a_finished_job_is_removed_by_its_own_ttl_where_the_namespace_sets_none() -> None:
    for ttl, left in ((1e9, True), (5.0, False), (None, True)):
        node, cluster = Versioned(), at_work(ttl_seconds=ttl)
        path = laid_out(node, cluster)
        finish(node, cluster, path, 0)
        a_controller(node)._reconcile(ref_of(cluster))
        assert (path in node.objects) is left


@pytest.mark.req("PMV-005")
@pytest.mark.parametrize(("on", "told"), [(("worker_lost",), True), (("program",), False), ((), False)])
def test_a_job_that_is_not_tried_again_for_its_cause_says_so_once(on: tuple[str, ...], told: bool) -> None:
    node, cluster = Versioned(), at_work(retry=Retry(limit=2, on=on))
    finish(node, cluster, laid_out(node, cluster), 3)
    one = a_controller(node)
    for _ in range(3):
        one._reconcile(ref_of(cluster))
    events = [message for reason, message in node.told() if reason == "NotRetried"]
    assert len(events) == told
    assert all(
        message.startswith("not retried: retry.on lists worker_lost, and the cause was") for message in events
    )


# -- pure --------------------------------------------------------------------------------------------
def a_state(phase: Phase, **more: Any) -> JobState:
    return JobState(ref=JobRef("cv", "bert", "u"), phase=phase, created=BEGIN, **more)


@pytest.mark.parametrize(
    ("own", "longest", "kept"),
    [(None, None, None), (5, None, 5), (None, 7, 7), (5, 7, 5), (9, 7, 7), (0, 7, 0)],
)
def test_a_job_may_be_kept_for_less_than_its_namespace_allows_and_not_for_more(
    own: float | None, longest: float | None, kept: float | None
) -> None:
    limits = NamespaceLimits(retention=Retention(finished_jobs_seconds=longest))
    assert limits_policy.kept_seconds(own, limits) == kept
    assert limits_policy.kept_seconds(own, NamespaceLimits()) == own


def test_an_end_is_the_last_transition_and_times_never_go_back() -> None:
    begun = limits_policy.next_transition(Progress(), a_state(Phase.RUNNING, running=BEGIN + 5), BEGIN + 9)
    assert begun == Progress("Running", BEGIN + 5, 1)
    over = limits_policy.next_transition(begun, a_state(Phase.SUCCEEDED, finished=BEGIN + 3), BEGIN + 9)
    assert over == Progress("Succeeded", BEGIN + 5, 2)
    assert limits_policy.next_transition(over, a_state(Phase.RUNNING), BEGIN + 9) is None
    assert limits_policy.next_transition(over, a_state(Phase.SUCCEEDED), BEGIN + 9) is None


def test_the_deadline_alarm_rings_at_nine_tenths_of_the_shorter_time() -> None:
    state, limits = a_state(Phase.RUNNING, running=BEGIN), NamespaceLimits(max_duration_seconds=200)
    assert limits_policy.deadline_alarm(state, 100, limits, BEGIN + 89) is None
    alarm = limits_policy.deadline_alarm(state, 100, limits, BEGIN + 92)
    assert alarm is not None
    assert alarm.message == "less than a tenth is left of the 100 s that the job may run"
    assert limits_policy.deadline_alarm(state, None, NamespaceLimits(), BEGIN + 1e6) is None


def test_gpus_are_idle_when_no_worker_computes_for_the_whole_time() -> None:
    state, idle = a_state(Phase.RUNNING, running=BEGIN), Idle(after_seconds=100)

    def measured(cores: float, *times: float) -> list[Sample]:
        return [Sample(BEGIN + one, 0, cores, 0, 1) for one in times]

    now = BEGIN + 200
    quiet = measured(0.01, 10, 110, 150, 200)
    alarm = limits_policy.idle_alarm(state, 8, quiet, idle, now)
    assert alarm is not None
    assert "8 GPUs" in alarm.message
    assert limits_policy.idle_alarm(state, 0, quiet, idle, now) is None
    assert limits_policy.idle_alarm(state, 8, [*quiet, *measured(1.0, 190)], idle, now) is None
    assert limits_policy.idle_alarm(state, 8, measured(0.01, 150, 200), idle, now) is None
    at_work_on_it = Sample(BEGIN + 190, 0, 0.01, 0, 1, gpus=0.5)
    assert limits_policy.idle_alarm(state, 8, [*quiet, at_work_on_it], idle, now) is None
