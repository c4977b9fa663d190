"""Many jobs under one controller: on fake nodes, whose pods run nothing. Figures are printed (`pytest -s`)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from testbed import kwok, processes
from tests.e2e.cluster.governed import controller, install_resources, noted_phase
from tests.e2e.cluster.support import Place, eventually, own_place
from tests.e2e.cluster.test_scale import SUBMITTERS, fake

from mpijob import MPIJob
from mpijob.backends.kubernetes.backend import KubernetesBackend

pytestmark = [pytest.mark.testbed, pytest.mark.alone, pytest.mark.long]
JOBS = int(os.environ.get("MPIJOB_TEST_JOBS", "500"))
WORKERS = 8
MOST_MEGABYTES = 150.0


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    there = processes.is_running("kwok")
    kwok.up(max(8, JOBS * (WORKERS + 1) // 100 + 1))
    with own_place(kubeconfig, "many") as place:
        install_resources(place)
        yield place
    if not there:
        kwok.down()


def megabytes(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def put(place: Place, jobs: list[MPIJob]) -> None:
    """Submit jobs that are alike; the cluster is looked at for the first of them alone.

    It is the controller that is tried here: five hundred looks at thousands of pods would try the API server.
    """

    def some(share: int) -> None:
        backend = KubernetesBackend(place.settings)
        who = backend.whoami()
        found = backend.preflight(jobs[0], who)
        for job in jobs[share::SUBMITTERS]:
            backend.submit(backend.plan(job, found), who)

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(some, range(SUBMITTERS)))


@pytest.mark.req("C-ha")
def test_a_controller_stays_small_and_leaves_nobody_out(place: Place) -> None:
    jobs = [fake(f"many-{number}", workers=WORKERS, namespace=place.namespace) for number in range(JOBS)]
    with controller(place) as service:
        put(place, jobs)
        last = time.monotonic()
        eventually(
            lambda: all(noted_phase(place, job.name) for job in jobs[:: max(1, JOBS // 20)]),
            "every job is told",
            600,
        )
        took, size = time.monotonic() - last, megabytes(service.process.pid)
    sys.stderr.write(
        f"\n  {JOBS} jobs x {WORKERS} workers: {size:.0f} MB, all told {took:.1f} s after the last submit"
    )
    assert size <= MOST_MEGABYTES
