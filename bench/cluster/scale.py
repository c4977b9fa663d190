"""The greatest numbers that were tried: jobs at once, workers of one job, GPUs in use.

They are tried on fake nodes (kwok), whose pods are Ready and run nothing: what is shown is that everything is
made, told and counted, and how long that takes. It needs the test bed, which brings the fake nodes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bench.cluster.places import PATIENCE_SECONDS, Place, place
from bench.line import Line, Unmeasured, at_least
from bench.places import Options
from mpijob import Client, MPIJob, Phase, Resources
from mpijob.model import Placement

NODES, GPUS_EACH = 64, 8
JOBS, WORKERS = 100, 100
SUBMITTERS = 4
TINY = Resources(cpu="10m", memory="32Mi")
FAKE = Placement(
    node_selector={"type": "kwok"}, tolerations=({"key": "kwok.x-k8s.io/node", "operator": "Exists"},)
)


def measure(options: Options) -> Iterator[Line]:
    """Yield a line for each number."""
    with _fake_nodes():
        yield _gpus()
        yield _workers()
        yield _jobs(20 if options.quick else JOBS)


def line(words: str, unit: str, reached: int, asked: int, note: str, rows: tuple[str, ...]) -> Line:
    """Return how many there were at once, against how many are asked for."""
    return Line(
        f"scale: {words}", unit, reached, asked, reached / asked, at_least(1.0), note=f"fake nodes; {note}",
        rows=rows,
    )  # fmt: skip


def _jobs(count: int) -> Line:
    with place("crowd") as there:
        start = time.monotonic()
        _submit(there, [_job(there, f"many-{number:03d}", 1) for number in range(count)])
        submitted = time.monotonic() - start
        reached = _most_running(there, count, 4 * PATIENCE_SECONDS)
        note = f"all submitted after {submitted:.0f} s, seen running after {time.monotonic() - start:.0f} s"
    rows = ("C-100", "NFR-006") if count >= JOBS else ()
    return line("jobs that run at once", "jobs", reached, count, note, rows)


def _workers() -> Line:
    with place("wide") as there:
        start = time.monotonic()
        job = there.client.submit(_job(there, "wide", WORKERS))
        job.wait(PATIENCE_SECONDS, {Phase.RUNNING})
        taken = time.monotonic() - start
        reached = sum(one.phase is Phase.RUNNING for one in job.state().workers)
    return line(
        "workers of one job", "workers", reached, WORKERS, f"running after {taken:.0f} s", ("NFR-005",)
    )


def _gpus() -> Line:
    with place("gpus") as there:
        full = TINY.replace(gpu=GPUS_EACH)
        start = time.monotonic()
        each = NODES // 8
        _submit(there, [_job(there, f"gpus-{number}", each, full) for number in range(8)])
        reached = _most_running(there, 8, PATIENCE_SECONDS) * each * GPUS_EACH
        note = f"in 8 jobs of {each} workers, all running after {time.monotonic() - start:.0f} s"
    return line("GPUs in use at once", "GPUs", reached, NODES * GPUS_EACH, note, ("E-512",))


def _most_running(there: Place, count: int, seconds: float) -> int:
    """Return how many jobs ran at once: all of them, or the most that were seen before time was up."""
    most, deadline = 0, time.monotonic() + seconds
    while most < count and time.monotonic() < deadline:
        most = max(most, Counter(state.phase for state in there.client.jobs())[Phase.RUNNING])
        time.sleep(0 if most == count else max(1.0, count / 50))
    return most


def _job(there: Place, name: str, workers: int, room: Resources = TINY) -> MPIJob:
    """Return a job for the fake nodes, which runs until it is deleted."""
    from testbed import manifests

    return MPIJob(
        name=name, namespace=there.namespace, workers=workers, command=("true",), placement=FAKE, resources=room,
        launcher=TINY, grace_seconds=1.0, labels={manifests.FOR_EVER: "yes"},
    )  # fmt: skip


def _submit(there: Place, jobs: list[MPIJob]) -> None:
    """Submit jobs from a few clients at once."""
    clients = [Client(settings=there.client.settings) for _ in range(SUBMITTERS)]

    def submit(share: int) -> None:
        for job in jobs[share::SUBMITTERS]:
            clients[share].submit(job)

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(submit, range(SUBMITTERS)))
    for client in clients:
        client.close()


@contextmanager
def _fake_nodes() -> Iterator[None]:
    """Bring the fake nodes, and take them away unless they were there before."""
    from testbed import cluster, kwok, processes
    from testbed.session import uses_another_cluster

    if uses_another_cluster() or not cluster.is_up():
        raise Unmeasured("the fake nodes belong to the test bed, and it is down or another cluster is in use")
    there = processes.is_running("kwok")
    kwok.up(NODES)
    try:
        yield
    finally:
        if not there:
            kwok.down()
