"""Many jobs, many GPUs, many workers: on fake nodes, whose pods are Ready and run nothing.

So no world is ever proved here: what is shown is that everything is made, listed, told and removed, and what
that costs the client. Figures are printed (`pytest -s`).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from testbed import kwok, manifests, processes
from tests.e2e.cluster.support import Place, a_job, eventually, own_place

from mpijob import Client, Job, JobState, MPIJob, Phase
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import METADATA
from mpijob.model import Placement, Resources

pytestmark = [pytest.mark.testbed, pytest.mark.alone]
NODES, GPUS_EACH = 64, 8
FAKE = Placement(
    node_selector={"type": "kwok"}, tolerations=({"key": "kwok.x-k8s.io/node", "operator": "Exists"},)
)
TINY = Resources(cpu="100m", memory="64Mi")
SUBMITTERS = 4  # processes of a small team; the engines are slower than they are
LEFT = (resources.TRAINJOB, resources.TRAINING_RUNTIME, resources.JOBSET, resources.JOB, resources.POD)


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "scale") as place:
        yield place


@pytest.fixture(scope="module")
def nodes() -> Iterator[Callable[[int], None]]:
    """Return what makes sure that there are so many fake nodes; they are gone afterwards."""
    there = processes.is_running("kwok")
    yield kwok.up
    if not there:
        kwok.down()


def fake(name: str, **fields: Any) -> MPIJob:
    """Return a job for the fake nodes, which runs until it is deleted."""
    fields.setdefault("resources", TINY)
    return a_job(name, placement=FAKE, labels={manifests.FOR_EVER: "yes"}, **fields)


class Timed:
    """Measures what is done inside and prints it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> Timed:
        self._begun = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._begun
        sys.stderr.write(f"\n  {self._what}: {self.seconds:.1f} s")


def submitted(place: Place, jobs: list[MPIJob]) -> list[Job]:
    """Submit jobs from a few clients at once."""
    clients = [Client(KubernetesBackend(place.settings), settings=place.settings) for _ in range(SUBMITTERS)]

    def submit(share: int) -> list[Job]:
        return [clients[share].submit(job) for job in jobs[share::SUBMITTERS]]

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        return [job for share in pool.map(submit, range(SUBMITTERS)) for job in share]


def phases(place: Place) -> Counter[Phase]:
    return Counter(state.phase for state in place.client.jobs())


def until_running(place: Place, count: int, seconds: float) -> None:
    """Wait until so many jobs run; looking at hundreds of jobs is work, so it is done now and then."""
    deadline = time.monotonic() + seconds
    while (found := phases(place))[Phase.RUNNING] < count:
        assert time.monotonic() < deadline, found
        time.sleep(max(1.0, count / 50))


def removed(place: Place, jobs: list[Job]) -> None:
    """Delete jobs, several at a time, and expect that nothing of them is left."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: job.delete(0), jobs))
    beginnings = tuple(job.name for job in jobs)
    eventually(lambda: not left(place, beginnings), "nothing is left", 60.0)


def left(place: Place, beginnings: tuple[str, ...]) -> list[str]:
    found = [
        one for kind in LEFT for one in place.api.list(kind.path(place.namespace), accept=METADATA).items
    ]
    return [one for one in (item["metadata"]["name"] for item in found) if one.startswith(beginnings)]


def check_state(state: JobState, workers: int) -> None:
    """Expect a job all of whose workers have their places."""
    assert state.phase is Phase.RUNNING, state
    assert [one.index for one in state.workers] == [*range(workers)]
    assert {one.phase for one in state.workers} == {Phase.RUNNING}
    assert all(one.node.startswith("fake-") for one in state.workers)


MEASURE = r"""
import pathlib, re, time
from mpijob import Client
client = Client()
begun = time.monotonic()
count = sum(1 for _ in client.jobs())
seconds = time.monotonic() - begun
# not getrusage: there the memory of whoever started this process counts too
most = re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())
print(count, seconds, int(most[1]) / 1024)
"""


def measured(place: Place) -> tuple[int, float, float]:
    """Return how many jobs a fresh client lists, in how many seconds, with how many MiB of memory."""
    words = [sys.executable, "-c", MEASURE]
    done = subprocess.run(
        words, env=place.environ(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    count, seconds, memory = done.stdout.split()
    sys.stderr.write(
        f"\n  a fresh client lists {count} jobs: {float(seconds):.2f} s, {float(memory):.0f} MiB"
    )
    return int(count), float(seconds), float(memory)


def crowd(place: Place, count: int, workers: int, seconds: float) -> list[Job]:
    """Return so many jobs that all run at once."""
    with Timed(f"{count} jobs submitted"):
        jobs = submitted(place, [fake(f"many-{number:03d}", workers=workers) for number in range(count)])
    with Timed(f"{count} jobs run"):
        until_running(place, count, seconds)
    assert phases(place) == {Phase.RUNNING: count}
    listed, list_seconds, memory = measured(place)
    assert listed == count
    assert list_seconds < 20
    assert memory < 100
    check_state(jobs[count // 2].state(), workers)
    return jobs


@pytest.mark.req("SC-007")
def test_some_jobs_run_at_once_on_fake_nodes_and_leave_nothing(
    place: Place, nodes: Callable[[int], None]
) -> None:
    nodes(4)
    removed(place, crowd(place, 6, 2, 60))


@pytest.mark.long
@pytest.mark.req("SC-007", "NFR-006")
def test_fifty_jobs_run_at_once(place: Place, nodes: Callable[[int], None]) -> None:
    nodes(NODES)
    jobs = crowd(place, 50, 2, 180)
    with Timed("50 jobs removed"):
        removed(place, jobs)


@pytest.mark.long
@pytest.mark.req("C-100", "NFR-006")
def test_five_hundred_jobs_run_at_once(kubeconfig: Path, nodes: Callable[[int], None]) -> None:
    """They go with their namespace; that a job takes everything along is shown for fifty."""
    nodes(NODES)
    with own_place(kubeconfig, "crowded") as place:
        crowd(place, 500, 1, 900)


@pytest.mark.long
@pytest.mark.req("E-512", "B-edge-pending")
def test_512_gpus_are_used_and_whoever_wants_one_more_is_told(
    place: Place, nodes: Callable[[int], None]
) -> None:
    nodes(NODES)
    full = TINY.replace(gpu=GPUS_EACH)
    jobs = submitted(place, [fake(f"gpus-{n}", workers=8, resources=full) for n in range(8)])
    until_running(place, 8, 120)
    one = place.client.plan(fake("one-more", workers=1, resources=TINY.replace(gpu=1)))
    sys.stderr.write(f"\n  the plan says: {[notice.message for notice in one.notices]}")
    assert "Requested 1 GPU but only 0 available." in [notice.message for notice in one.notices]
    last = place.client.submit(fake("one-more", workers=1, resources=TINY.replace(gpu=1)))
    state = eventually(lambda: told(last), "it says what it waits for", 30.0)
    sys.stderr.write(f"\n  the job says: {state.waiting_for}")
    assert state.phase is Phase.PENDING
    assert state.waiting_for == "Waiting for resources. 0/1 GPUs available."
    assert state.message.startswith("Insufficient GPUs: requested 1, available 0"), state.message
    jobs.pop().delete(0)
    last.wait(60, {Phase.RUNNING})
    removed(place, [*jobs, last])


def told(job: Job) -> JobState | None:
    state = job.state()
    return state if state.reason == "Unschedulable" else None


@pytest.mark.long
@pytest.mark.req("NFR-005")
def test_one_job_of_a_hundred_workers(place: Place, nodes: Callable[[int], None]) -> None:
    nodes(NODES)
    with Timed("100 workers planned"):
        plan = place.client.plan(fake("hundred", workers=100))
    assert (len(plan.workers), plan.world, plan.hostfile.count("slots=1")) == (100, 100, 100)
    with Timed("100 workers run"):
        job = place.client.submit(fake("hundred", workers=100))
        job.wait(120, {Phase.RUNNING})
    with Timed("one look at 100 workers"):
        state = job.state()
    check_state(state, 100)
    assert state.aggregate == "100/100 Running"
    assert len(place.pods(job)) == 101
    shown = place.mpijob("describe", "hundred")
    assert (shown.returncode, shown.stdout.count("fake-") >= 100) == (0, True), shown.stderr
    removed(place, [job])


@pytest.mark.long
def test_a_sweep_from_2_to_64_workers(place: Place, nodes: Callable[[int], None]) -> None:
    nodes(NODES)
    counts = [2, 4, 8, 16, 32, 64]
    with Timed("a sweep of 2 to 64 workers submitted"):
        jobs = place.client.array(fake("sweep"), {"workers": counts})
    with Timed("a sweep of 2 to 64 workers runs"):
        until_running(place, len(counts), 180)
    for job, count in zip(jobs, counts, strict=True):
        check_state(job.state(), count)
    removed(place, jobs)
