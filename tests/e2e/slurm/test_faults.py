"""What breaks in a Slurm cluster, made for real: the job's state stays true, and `why` names the cause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testbed.slurm import control
from tests.e2e.slurm.support import (
    PATIENCE,
    codes,
    ended,
    job,
    running,
    switched_off,
)

from mpijob import Client, Phase
from mpijob.backends.slurm.backend import SlurmBackend
from mpijob.settings import Settings


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    """Bring the cluster back, whatever a test has left."""
    yield
    control.ask("reset")


def test_a_job_whose_node_is_lost_fails_and_names_the_node(client: Client) -> None:
    handle = running(client, job("lost", "echo up; sleep 300"))
    with switched_off("n4"):
        state = ended(handle)
        assert (state.phase, codes(state)[0]) == (Phase.FAILED, "SLURM_NODE_FAILED")
        assert "n4" in state.message or "n[3-4]" in state.message
        assert [line.text for line in handle.logs(ranks=(0,))] == [b"up"]


def test_a_job_whose_first_node_is_lost_fails_although_nothing_of_it_could_say_so(client: Client) -> None:
    handle = running(client, job("lost", "echo up; sleep 300"))
    with switched_off("n3"):
        state = ended(handle)
        assert (state.phase, codes(state)[0]) == (Phase.FAILED, "SLURM_NODE_FAILED")


def test_a_job_that_may_be_requeued_starts_again_on_other_nodes(settings: Settings) -> None:
    with Client(SlurmBackend(settings, "slurm:main"), settings=settings) as client:
        script = 'echo attempt $MPIJOB_ATTEMPT; if [ "$MPIJOB_ATTEMPT" = 1 ]; then sleep 300; fi'
        handle = running(client, job("again", script, requeue_on_lost_worker=True))
        node = handle.state().workers[1].node
        with switched_off(node):
            state = handle.wait_for_completion(PATIENCE)
            assert (state.phase, state.attempt) == (Phase.SUCCEEDED, 2)
            assert node not in {worker.node for worker in state.workers}
            assert {line.text for line in handle.logs(attempt=1)} >= {b"attempt 1"}
            assert "Requeued" in [event.reason for event in handle.events()]
        client.delete(handle.ref)
