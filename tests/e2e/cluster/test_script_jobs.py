"""A script as a job in pods: it runs once, in the launcher's, and its launchers are steps over the workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.support import PATIENCE, Place, a_job, image, own_place
from tests.e2e.cluster.test_families import IMAGES

from mpijob import Phase
from mpijob.model import Code, MPIJob

SCRIPT = """#!/bin/sh
export GREETING=hallo
echo "$1 on $(hostname -s) of $SLURM_NNODES"
mpirun -n 4 sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS $GREETING $SLURM_NODEID'
mpiexec -n 2 sh -c 'echo $SLURM_LOCALID' > out.txt; sort out.txt | tr '\\n' ' '; echo
srun -N2 -n3 sh -c 'echo $SLURM_PROCID $SLURM_NODEID' | sort
mpirun -n 2 sh -c 'exit 5'; echo "status $?"
scontrol show hostnames | wc -l
[ -z "$2" ] || { mpirun -n 2 sh -c 'echo no mesh >&2; exit 6' || exit 3; }
"""


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "scripts") as place:
        yield place


def script_job(name: str, variant: str, *args: str) -> MPIJob:
    job = a_job(name, "true", workers=2, image=image(variant), mpi=IMAGES[variant][0])
    return job.replace(command=(), script="run.sh", args=args, slots=2, code=Code(files={"run.sh": SCRIPT}))


@pytest.mark.parametrize("variant", IMAGES)
def test_a_scripts_launchers_are_steps_over_the_pods(place: Place, variant: str) -> None:
    wanted = script_job(f"script-{variant}", variant, "one")
    job = place.client.submit(wanted)
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED, [line.text for line in job.logs()]
    said = [*job.logs()]
    ranks = {line.rank: line.text.decode() for line in said if line.rank is not None}
    assert ranks == {rank: f"{rank}/4 hallo {rank // 2}" for rank in range(4)}
    assert {line.step for line in said if line.rank is not None} == {0}
    launcher = [line.text.decode() for line in said if line.rank is None and line.worker is None]
    for text in ("0 1 ", "0 0", "1 0", "2 1", "status 5", "2"):
        assert text in launcher
    assert launcher[0].startswith("one on script-")
    assert not any("mpijob-" in text for text in launcher)
    steps = job.state().steps
    assert [(one.number, one.name, one.ranks, one.exit_code) for one in steps] == [
        (0, "mpirun", 4, 0), (1, "mpiexec", 2, 0), (2, "srun", 3, 0), (3, "mpirun", 2, 5),
    ]  # fmt: skip
    read = job.spec
    assert (read.script, read.args, read.command) == ("run.sh", ("one",), ())


def test_a_script_that_fails_tells_its_step(place: Place) -> None:
    job = place.client.submit(script_job("script-fails", next(iter(IMAGES)), "one", "two"))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    failed = job.state().steps[-1]
    assert (failed.number, failed.exit_code, job.state().launcher_exit_code) == (4, 6, 3)
