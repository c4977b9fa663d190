"""Whose a job's companions are on a real cluster: they go with the job, also when its creator was stopped halfway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.governed import controller
from tests.e2e.cluster.support import Place, a_job, eventually, own_place

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.submit import owner_references
from mpijob.model import Resources

TINY = Resources(cpu="50m", memory="64Mi")
LONG = "sleep 300"


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "owning") as place:
        yield place


def owners(place: Place, name: str) -> list[str]:
    runtime = place.find(resources.TRAINING_RUNTIME, name)
    assert runtime is not None
    return [one["uid"] for one in runtime["metadata"].get("ownerReferences") or ()]


def uid(place: Place, name: str) -> str:
    job = place.find(resources.TRAINJOB, name)
    assert job is not None
    return str(job["metadata"]["uid"])


def disown(place: Place, name: str) -> None:
    """Leave the runtime as a creator does that is killed before the job owns it."""
    path = resources.TRAINING_RUNTIME.path(place.namespace, name)
    place.api.patch(path, {"metadata": {"ownerReferences": None}})


def gone(place: Place, name: str) -> bool:
    return place.find(resources.TRAINING_RUNTIME, name) is None


def test_a_job_made_by_the_command_line_owns_its_runtime_when_that_ends(place: Place) -> None:
    size = ("--workers", "1", "--cpu", "50m", "--memory", "64Mi", "--launcher-cpu", "50m")
    done = place.mpijob("create", "by-hand", *size, "--", "sleep", "300")
    assert done.returncode == 0, done.stderr
    assert owners(place, "by-hand") == [uid(place, "by-hand")]
    place.kubectl("delete", "trainjob", "by-hand", "--wait=false")
    eventually(lambda: gone(place, "by-hand"), "its runtime goes with it")


def test_what_a_killed_creator_left_is_given_to_the_job_by_the_controller_and_deleted_with_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_references, "_STRAY_SECONDS", 0.0)
    job = place.client.submit(a_job("halfway", LONG, resources=TINY))
    eventually(lambda: owners(place, "halfway") == [uid(place, "halfway")], "the job owns its runtime")
    disown(place, "halfway")
    next(iter(place.client.watch(names=["halfway"])))
    assert owners(place, "halfway") == [], "following a job changes nothing"
    with controller(place):
        eventually(lambda: owners(place, "halfway") == [uid(place, "halfway")], "the controller mends that")
    disown(place, "halfway")
    job.delete(0)
    eventually(lambda: gone(place, "halfway"), "a runtime that nobody owns goes, too")
