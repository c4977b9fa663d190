"""Every MPI family on a real cluster: a world over several pods, proved, with a result that is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.support import PATIENCE, Crowd, Place, a_job, a_program, image, own_place, said

from mpijob import Phase
from mpijob.model import Family, Launch, Resources

ALLREDUCE = """
from mpi4py import MPI
import numpy
world = MPI.COMM_WORLD
data = numpy.full(200_000, world.rank + 1.0)
total = numpy.empty_like(data)
world.Allreduce(data, total)
expected = world.size * (world.size + 1) / 2
print("sum", "right" if (total == expected).all() else "wrong", world.size, flush=True)
"""
ROOMY = Resources(cpu="150m", memory="512Mi")
IMAGES = {
    "openmpi4": (Family.OPENMPI, "trainer"),
    "openmpi5": (Family.OPENMPI, "trainer"),
    "mpich": (Family.MPICH, "mpi-operator"),
    "intel": (Family.INTEL, "mpi-operator"),
}


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "families") as place:
        yield place


@pytest.mark.req("NFR-003", "R5", "FR-INT-006")
@pytest.mark.parametrize("variant", IMAGES)
@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_family_reduces_over_pods_and_every_rank_is_where_the_plan_has_it(
    place: Place, variant: str, workers: int
) -> None:
    family, engine = IMAGES[variant]
    job = a_program(
        f"{variant}-{workers}", ALLREDUCE, image=image(variant), mpi=family, workers=workers, slots=2,
        resources=ROOMY,
    )  # fmt: skip
    plan = place.client.plan(job)
    handle = place.client.submit(job)
    state = handle.wait_for_completion(PATIENCE)
    assert (state.phase, state.engine, state.world) == (Phase.SUCCEEDED, engine, 2 * workers)
    planned = {rank: worker.index for worker in plan.workers for rank in worker.ranks}
    assert {rank.rank: rank.worker for rank in state.ranks} == planned
    assert [rank.exit_code for rank in state.ranks] == [0] * (2 * workers)
    assert said(handle, regex="^sum") == {rank: [f"sum right {2 * workers}"] for rank in range(2 * workers)}


CORES = "import os; print('cores', len(os.sched_getaffinity(0)), os.cpu_count(), flush=True)"


@pytest.mark.req("D-overhead")
def test_a_rank_may_use_every_core_of_its_node_unless_the_job_binds_it(place: Place) -> None:
    """Pods of one node know nothing of each other: bound by themselves, their ranks would share its first core."""
    free = [
        a_program(f"free-{variant}", CORES, image=image(variant), mpi=IMAGES[variant][0], resources=ROOMY)
        for variant in ("openmpi4", "openmpi5", "intel")
    ]
    bound = a_program("bound", CORES, launch=Launch(bind_to="core"), resources=ROOMY)
    crowd = Crowd(place, *free, bound)
    for job in (*free, bound):
        told = [line.split() for lines in said(crowd.succeeded(job)).values() for line in lines]
        assert [words[0] for words in told] == ["cores", "cores"]
        for _, mine, all_of_them in told:
            assert (int(mine) < int(all_of_them)) is (job is bound)


ALONE = "from mpi4py import MPI; import time; print('a world of', MPI.COMM_WORLD.size, flush=True); time.sleep(120)"
CUT = "exec env -i PATH=$PATH HOME=$HOME LD_LIBRARY_PATH=$LD_LIBRARY_PATH OPAL_PREFIX=$OPAL_PREFIX python3 -c"


@pytest.mark.parametrize("variant", ["openmpi5", "mpich"])
def test_a_program_that_has_lost_its_launcher_ends_the_job(place: Place, variant: str) -> None:
    job = a_job(
        f"alone-{variant}", f'{CUT} "{ALONE}"', image=image(variant), mpi=IMAGES[variant][0], resources=ROOMY
    )
    state = place.client.submit(job).wait(PATIENCE)
    assert (state.phase, state.reason) == (Phase.FAILED, "WrongWorld"), state.message
    assert "without the variables of its launcher" in state.message
    assert state.findings[0].code == "WRONG_WORLD"
    assert max(rank.exit_code or 0 for rank in state.ranks) == 137
