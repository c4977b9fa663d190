"""The launcher as a part of its own: how far it has come, where it is, what it holds, how it ended."""

from __future__ import annotations

from math import floor

import pytest

from mpijob import Client, Phase
from mpijob.model import LauncherPhase, LauncherState

from .builders import PATIENCE, a_job, fails_on_worker_1, fills_the_place, finished, running, runs_long

ORDER = [*LauncherPhase]


def launcher_of(client: Client, name: str) -> LauncherState:
    launcher = client.state(name).launcher
    assert launcher is not None
    return launcher


@pytest.mark.req("R3", "FR-OBS-005")
def test_the_launcher_comes_further_and_never_back_until_it_has_ended(client: Client) -> None:
    job = client.submit(a_job("steps", "sleep 2"))
    seen: list[LauncherPhase] = []
    for state in client.watch(names=("steps",)):
        if state.launcher is not None and state.launcher.phase not in seen:
            seen.append(state.launcher.phase)
        if state.phase.final:
            break
    assert seen == sorted(seen, key=ORDER.index)
    assert job.state().launcher is not None
    assert launcher_of(client, "steps").phase is LauncherPhase.SUCCEEDED


@pytest.mark.req("R3", "FR-OBS-005", "FR-017", "C-tabs")
def test_a_running_launcher_says_where_it_is_what_it_holds_and_since_when(client: Client) -> None:
    job = running(client, runs_long())
    launcher = launcher_of(client, "long")
    assert launcher.phase is LauncherPhase.RUNNING
    assert launcher.node
    assert launcher.log_source.partition(":")[0].partition("/")[0] in ("pod", "file", "memory")
    assert (launcher.restarts, launcher.exit_code, launcher.finished) == (0, None, None)
    assert (launcher.cores, launcher.memory_limit_bytes) == (
        job.spec.launcher.cores,
        job.spec.launcher.memory_bytes,
    )
    times = [launcher.scheduled, launcher.started, launcher.ready, launcher.running]
    whole = [floor(one) for one in times if one is not None]  # a cluster's times are whole seconds
    assert len(whole) == 4
    assert whole == sorted(whole)


@pytest.mark.req("D-sdk")
def test_the_launcher_is_ready_by_its_own_word_and_only_while_it_runs(client: Client) -> None:
    first = running(client, fills_the_place("first"))
    waits = client.submit(fills_the_place("waits"))
    assert client.get_job_status("first").launcher_ready
    assert (client.get_job_status("waits").launcher_ready, waits.state().launcher) == (False, None)
    first.cancel()
    assert first.wait(PATIENCE).phase is Phase.CANCELLED
    status = client.get_job_status("first")
    assert not status.launcher_ready
    assert status.launcher is not None
    assert status.launcher.phase.final


@pytest.mark.req("R3", "A-edge-worker")
def test_the_launcher_of_a_failed_job_tells_its_own_exit_code(client: Client) -> None:
    state = finished(client, fails_on_worker_1()).state()
    launcher = launcher_of(client, "bad")
    assert launcher.phase in (
        LauncherPhase.FAILED,
        LauncherPhase.CANCELLED,
    )  # by itself, or ended with the job
    assert launcher.exit_code not in (0, None)
    assert launcher.exit_code == state.launcher_exit_code


def test_a_list_tells_the_launcher_too(client: Client) -> None:
    running(client, a_job("listed", "sleep 300"))
    (state,) = client.list().items
    assert state.launcher is not None
    assert not state.launcher.phase.final
