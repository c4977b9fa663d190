"""What breaks in a Slurm cluster, made for real: the job's state stays true, and `why` names the cause."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from testbed.slurm import control
from tests.e2e.slurm.conftest import PARTITION
from tests.e2e.slurm.support import (
    PATIENCE,
    clock_behind,
    codes,
    ended,
    eventually,
    job,
    running,
    spool_full,
    switched_off,
    without,
)

from mpijob import Client, Job, Phase
from mpijob.backends.slurm.backend import SlurmBackend
from mpijob.errors import BackendError, MpiJobError
from mpijob.model import Resources
from mpijob.settings import Settings

pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    """Bring the cluster back, whatever a test has left."""
    yield
    control.ask("reset")


@pytest.fixture
def main(settings: Settings) -> Iterator[Client]:
    """Return a client of the partition with all four nodes."""
    with Client(SlurmBackend(settings, "slurm:main"), settings=settings) as client:
        yield client
        for state in [*client.jobs(all_namespaces=True)]:
            client.delete(state.ref, grace_period=0)


def waits_because(handle: Job, reason: str) -> bool:
    state = handle.state()
    return state.phase is Phase.QUEUED and reason in state.message


# -- nodes -------------------------------------------------------------------------------------------
def test_a_job_whose_node_is_lost_fails_with_its_cause_within_two_seconds_of_slurms_own_word(
    client: Client,
) -> None:
    handle = running(client, job("lost", "echo up; sleep 300"))
    with switched_off("n4"):
        eventually("Slurm's own word", lambda: "down" in control.admin("sinfo", "-h", "-n", "n4", "-o", "%T"))
        detected = time.monotonic()
        state = ended(handle)
        assert time.monotonic() - detected < 2.0 + 2.0  # squeue is asked every two seconds
        assert (state.phase, codes(state)[0]) == (Phase.FAILED, "SLURM_NODE_FAILED")
        assert "n4" in state.message or "n[3-4]" in state.message
        assert [line.text for line in handle.logs(ranks=(0,))] == [b"up"]


def test_a_job_whose_first_node_is_lost_fails_although_nothing_of_it_could_say_so(client: Client) -> None:
    handle = running(client, job("lost", "echo up; sleep 300"))
    with switched_off("n3"):
        state = ended(handle)
        assert (state.phase, codes(state)[0]) == (Phase.FAILED, "SLURM_NODE_FAILED")


def test_a_job_that_may_be_requeued_starts_again_on_other_nodes(main: Client) -> None:
    script = 'echo attempt $MPIJOB_ATTEMPT; if [ "$MPIJOB_ATTEMPT" = 1 ]; then sleep 300; fi'
    handle = running(main, job("again", script, requeue_on_lost_worker=True))
    node = handle.state().workers[1].node
    with switched_off(node):
        state = handle.wait_for_completion(PATIENCE)
        assert (state.phase, state.attempt) == (Phase.SUCCEEDED, 2)
        assert node not in {worker.node for worker in state.workers}
        assert {line.text for line in handle.logs(attempt=1)} >= {b"attempt 1"}
        assert "Requeued" in [event.reason for event in handle.events()]
        assert [one.attempt for one in main.attempts("again")] == [1, 2]


def test_drained_nodes_are_why_a_job_waits(client: Client) -> None:
    for node in ("n3", "n4"):
        control.admin("scontrol", "update", f"nodename={node}", "state=drain", "reason=disk")
    handle = client.submit(job("waits", "true"))
    eventually("the reason", lambda: waits_because(handle, "down, drained or reserved"))


def test_a_prolog_that_fails_holds_the_job_and_says_so(client: Client) -> None:
    control.ask("hook", "prolog", True)
    handle = client.submit(job("held", "true", requeue_on_lost_worker=True))
    eventually("the hold", lambda: handle.state().reason == "Held")
    assert waits_because(handle, "launch failed")
    handle.cancel()
    control.call("ctl", "sh", "-c", "scontrol update nodename=n3,n4 state=resume || true")
    refused = ended(client.submit(job("refused", "true")))
    assert refused.phase is Phase.FAILED
    assert "prolog" in refused.message


# -- daemons -----------------------------------------------------------------------------------------
def test_a_job_goes_on_while_the_controller_is_away_and_ends_as_it_would(
    client: Client,
) -> None:
    seconds = 30
    handle = running(client, job("goes-on", f"echo up; sleep {seconds - 10}; echo over"))
    with without("ctl", "slurmctld"):  # killed, it would forget the newest jobs and give their numbers again
        end = time.monotonic() + seconds
        while time.monotonic() < end and (state := handle.state()).phase is not Phase.SUCCEEDED:
            assert state.phase is Phase.RUNNING
            time.sleep(1.0)
        # the end of the journal is believed without Slurm's word
        assert handle.state().phase is Phase.SUCCEEDED
        with pytest.raises(BackendError) as caught:
            client.submit(job("refused", "true"))
        assert caught.value.passing
    assert handle.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
    assert b"over" in [line.text for line in handle.logs(ranks=(0,))]


def test_without_the_accounting_database_jobs_are_submitted_run_and_end(
    client: Client, backend: SlurmBackend
) -> None:
    with without("ctl", "slurmdbd"):
        handle = client.submit(job("no-database", "echo ran"))
        assert handle.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
        findings = [one.message for one in backend.doctor()]
        assert any("accounting does not respond" in one for one in findings)


def test_without_munge_the_job_runs_and_new_ones_are_refused_with_the_cause(client: Client) -> None:
    handle = running(client, job("authentic", "echo up; sleep 5"))
    with without("login", "munged"):
        with pytest.raises(BackendError) as caught:
            client.submit(job("refused", "true"))
        assert caught.value.passing
        assert "authenti" in caught.value.message.lower() or "munge" in caught.value.message.lower()
    assert handle.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED


def test_a_node_whose_clock_is_behind_keeps_the_order_of_lines_and_is_named(client: Client) -> None:
    """Rank 0, on n3, speaks first, and rank 1, on n4, when it has heard that."""
    said = "$MPIJOB_OUTPUT/said"
    first, second = f"echo first; touch {said}", f"until [ -e {said} ]; do sleep 0.1; done; echo second"
    script = f'if [ "$MPIJOB_RANK" = 0 ]; then {first}; else {second}; fi'
    with clock_behind("n4", 60):
        handle = client.submit(job("skewed", script))
        state = handle.wait_for_completion(PATIENCE)
    assert [worker.node for worker in state.workers] == ["n3", "n4"]
    assert [line.text for line in handle.logs(ranks=(0, 1))] == [b"first", b"second"]
    assert 0.0 < (state.finished or 0.0) - (state.started or 0.0) < 60.0
    (skew,) = [event.message for event in handle.events() if event.reason == "ClockSkew"]
    assert "n4" in skew


def test_a_node_whose_spool_is_full_holds_the_job_and_says_so(client: Client) -> None:
    with spool_full("n3"):
        handle = client.submit(job("held", "true", requeue_on_lost_worker=True))
        eventually("the hold", lambda: handle.state().reason == "Held")
        assert waits_because(handle, "launch failed")
        refused = client.submit(job("refused", "true"))
        eventually("the drained node", lambda: waits_because(refused, "down, drained or reserved"))


# -- limits ------------------------------------------------------------------------------------------
def test_a_job_over_slurms_time_limit_fails_as_a_time_limit(settings: Settings) -> None:
    with Client(SlurmBackend(settings, "slurm:short"), settings=settings) as client:
        handle = running(client, job("late", "echo up; sleep 300"))
        state = ended(handle)
        assert (state.phase, codes(state)[0]) == (Phase.FAILED, "SLURM_TIME_LIMIT")
        client.delete(handle.ref)


def test_a_rank_out_of_memory_is_named_with_its_worker(client: Client) -> None:
    grow = 'if [ "$MPIJOB_RANK" = 1 ]; then /usr/bin/python3 -c "x = bytearray(600 << 20)"; fi; sleep 5'
    handle = client.submit(job("oom", grow, resources=Resources(cpu="1", memory="200Mi")))
    state = ended(handle)
    assert (state.phase, codes(state)[0]) == (Phase.FAILED, "OOM_KILLED")
    assert state.findings[0].worker == 1


def test_a_thousand_waiting_jobs_are_listed_whole_and_a_job_of_ours_has_its_turn(client: Client) -> None:
    sbatch = f"sbatch --partition={PARTITION} --job-name=many --begin=now+1hour --nodes=2 --wrap=true"
    submit = f"seq 1000 | xargs -P 4 -I . {sbatch} >/dev/null"  # an array that waits would be one job
    subprocess.run(("sh", "-c", submit), check=True, cwd="/tmp")
    handle = client.submit(job("ours", "true", workers=2))
    assert handle.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
    first = client.list(limit=600, phases=("Queued",))
    rest = client.list(limit=600, phases=("Queued",), after=first.after)
    found = [state.ref for page in (first, rest) for state in page.items]
    assert (first.total, len({*found}), rest.after) == (1000, 1000, "")
    assert {ref.name.partition("-")[0] for ref in found} == {"many"}
    subprocess.run(("scancel", "--name=many"), check=True)


def test_what_may_not_be_used_is_refused_before_it_is_submitted(client: Client) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "nowhere": {"queue": "nowhere"},
        "nobodys": {"cost": {"account": "nobodys"}},
        "golden": {"priority": "golden"},
        "closed": {"queue": "closed"},
    }
    for name, fields in wrong.items():
        with pytest.raises(MpiJobError, match=name):
            client.submit(job("refused", "true", **fields))
    assert [state.ref for state in client.jobs() if state.ref.name == "refused"] == []


def test_a_preempted_job_is_requeued_and_runs_again_as_the_next_attempt(settings: Settings) -> None:
    with Client(SlurmBackend(settings, settings.engine), settings=settings) as client:
        whole_nodes = Resources(cpu="4", memory="100Mi")
        script = 'echo attempt $MPIJOB_ATTEMPT; if [ "$MPIJOB_ATTEMPT" = 1 ]; then sleep 300; fi'
        low = job("low", script, resources=whole_nodes, priority="low", requeue_on_lost_worker=True)
        first = running(client, low)
        second = client.submit(job("high", "true", resources=whole_nodes, priority="high"))
        assert second.wait_for_completion(PATIENCE).phase is Phase.SUCCEEDED
        state = first.wait_for_completion(PATIENCE)
        assert (state.phase, state.attempt) == (Phase.SUCCEEDED, 2)
        for handle in (first, second):
            client.delete(handle.ref)
