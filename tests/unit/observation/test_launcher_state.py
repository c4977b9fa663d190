"""The launcher of a job on a cluster, from what its pod and its own log tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cluster_objects import (
    BEGIN,
    COUNTED,
    NOW,
    Cluster,
    at_work,
    derive,
    done,
    ended,
    running,
    stamp,
    unscheduled,
    waiting,
)

from mpijob.backends.kubernetes.status import derive_state, timeline
from mpijob.backends.kubernetes.status.attempts import richer
from mpijob.backends.kubernetes.status.derive_state import Objects
from mpijob.client.base import JobStatus
from mpijob.model import JobState, LauncherPhase, LauncherState

FIXTURES = Path(__file__).parents[2] / "fixtures" / "cluster"


def launcher(state: JobState) -> LauncherState:
    assert state.launcher is not None
    return state.launcher


def said(*lines: str) -> str:
    return "".join(f"{stamp(20 + at)} {line}\n" for at, line in enumerate(lines))


@pytest.mark.req("R3", "D-sdk")
def test_it_comes_from_its_place_to_its_command_by_its_own_words() -> None:
    made = Cluster().workers(running(10))
    told = [
        derive(made, ""),
        derive(Cluster().workers(running(10)).launcher(unscheduled("0/3 nodes: 3 Insufficient cpu.")), ""),
        derive(Cluster().workers(running(10)).launcher(waiting("ContainerCreating")), ""),
        derive(at_work(), ""),
        derive(at_work(), said("mpijob-ready workers=2")),
        derive(at_work(), said("mpijob-ready workers=2", *COUNTED.splitlines())),
    ]  # fmt: skip
    assert [launcher(state).phase.value for state in told] == [
        "Pending", "Pending", "Scheduled", "Starting", "Ready", "Running",
    ]  # fmt: skip
    assert [JobStatus.of(state).launcher_ready for state in told] == [False, False, False, False, True, True]
    assert launcher(told[0]).message == "2 of 2 workers are ready"
    assert launcher(told[1]).reason == "Unschedulable"
    last = launcher(told[-1])
    assert (last.scheduled, last.started, last.ready, last.running) == (
        BEGIN + 5, BEGIN + 12, BEGIN + 20, BEGIN + 25,
    )  # fmt: skip


def test_what_it_holds_and_where_it_speaks_comes_from_its_pod() -> None:
    found = launcher(derive(at_work()))
    assert (found.name, found.node, found.cores, found.memory_limit_bytes) == (
        "bert-launcher-0-0-x7k2p", "node-1", 0.1, 256 << 20,
    )  # fmt: skip
    assert found.log_source == "pod/bert-launcher-0-0-x7k2p/node"


def test_an_earlier_pod_of_it_counts_as_a_restart() -> None:
    cluster = Cluster(operator=True).workers(running(10)).launcher(running(12))
    (name, pod), *_ = [(name, pod) for name, pod in cluster.pods.items() if "launcher" in name]
    failed = {**pod, "metadata": {**pod["metadata"], "name": name + "-1", "creationTimestamp": stamp(2)}}
    cluster.pods[name + "-1"] = failed | {"status": ended(1, 4)}
    assert launcher(derive(cluster)).restarts == 1


@pytest.mark.parametrize(
    ("code", "phase", "message"),
    [(0, "Succeeded", ""), (3, "Failed", "the launcher exited with 3")],
)
def test_its_end_is_its_own_exit(code: int, phase: str, message: str) -> None:
    found = launcher(derive(done(code).condition("Complete" if code == 0 else "Failed")))
    assert (found.phase.value, found.exit_code, found.message, found.finished) == (
        phase, code, message, BEGIN + 60,
    )  # fmt: skip


def test_one_that_was_asked_to_end_is_cancelled() -> None:
    cluster = Cluster().workers(running(10)).worker(1, ended(137, 40))
    cluster.launcher(ended(143, 44, began=12), deletionTimestamp=stamp(43), deletionGracePeriodSeconds=1)
    assert launcher(derive(cluster.condition("Failed", at=41))).phase is LauncherPhase.CANCELLED


def test_a_list_goes_by_the_kubelet_because_it_reads_no_log() -> None:
    cluster = at_work()
    state = derive_state.summary(cluster.job, None, [*cluster.pods.values()])
    assert launcher(state).phase is LauncherPhase.RUNNING
    starting = Cluster().workers(running(10)).launcher(running(12, ready=False))
    state = derive_state.summary(starting.job, None, [*starting.pods.values()])
    assert launcher(state).phase is LauncherPhase.STARTING


def test_the_event_of_discovered_workers_has_the_time_that_the_launcher_gave() -> None:
    cluster = at_work()
    state = derive(cluster, said("mpijob-ready workers=2", *COUNTED.splitlines()))
    told = timeline.events(cluster.seen(), state, None)
    assert [one.time for one in told if one.reason == "WorkersReady"] == [BEGIN + 20]


def test_what_was_seen_of_it_stays_when_its_pod_is_gone() -> None:
    before = derive(done(3).condition("Failed"))
    after = derive(Cluster().condition("Failed"), "")
    assert launcher(after).node == ""
    kept = launcher(richer(before, after))
    assert (kept.name, kept.node, kept.exit_code, kept.finished) == (
        "bert-launcher-0-0-x7k2p", "node-1", 3, BEGIN + 60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fixture", "phase", "code"),
    [
        ("trainjob-succeeded", "Succeeded", 0),
        ("trainjob-rank-exit", "Failed", 3),
        ("trainjob-launcher-killed", "Failed", 137),
        ("mpijob-succeeded", "Succeeded", 0),
        ("trainjob-cancelled", "Cancelled", 0),
        ("kueue-waiting", None, None),
        ("foreign-trainjob-succeeded", None, None),
    ],
)
def test_of_real_objects(fixture: str, phase: str | None, code: int | None) -> None:
    found = json.loads((FIXTURES / f"{fixture}.json").read_text())
    log = found.pop("launcher_log", "") or ""
    seen = Objects(**{key: value for key, value in found.items() if key in Objects.__struct_fields__})
    own = derive_state.derive(seen, now=NOW, launcher_log=log).launcher
    assert (own and own.phase.value, own and own.exit_code) == (phase, code)
