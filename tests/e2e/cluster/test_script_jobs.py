"""A script as a job in pods: it runs once, in the launcher's, and its launchers are steps over the workers."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.furniture import a_claim
from tests.e2e.cluster.support import PATIENCE, Place, a_job, image, own_place
from tests.e2e.cluster.test_families import IMAGES
from tools import compare_slurm

from mpijob import Phase
from mpijob.model import Code, MPIJob, Volume, VolumeKind

DIFFERENT_IN_PODS = {  # in pods, and why
    "driver": "the image has no make",
    "output_files": "one job runs all scripts, so the numbers of its steps go on",
    "variables": "one job runs all scripts, and names of pods are not folded",
    "here_document": "hydra hands its input to rank 0 alone",
    "pipes": "hydra hands its input to rank 0 alone",
    "exit_status": "the status of srun is the launcher's, not the highest of its tasks'",
}
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

# Each script in a folder of its own that all pods see, one after the other; only the shape 2 x 2 is there
ALL = """#!/bin/bash
for name in {names}; do
  mkdir "/shared/$name" && cp -p * "/shared/$name" && cd "/shared/$name" || exit 1
  words=(); if [ -e "$name.args" ]; then mapfile -t words <"$name.args"; fi
  SLURM_JOB_NAME=${{name//_/-}} timeout 90 bash "./$name.sh" "${{words[@]}}" >said 2>&1
  status=$?
  echo "#### $name $status"; cat said; echo
  cd "$OLDPWD"
done
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


@pytest.mark.long
@pytest.mark.timeout(2000)
def test_scripts_print_in_pods_what_they_printed_on_a_real_slurm(place: Place) -> None:
    variant = "mpich"
    scripts = [name for name in compare_slurm.names() if _is_two_by_two(name)]
    assert len(scripts) >= 30
    with a_claim(place, f"shared-{variant}") as claim:
        job = script_job(f"all-{variant}", variant).replace(
            code=Code(path=str(compare_slurm.SCRIPTS), files={"run.sh": ALL.format(names=" ".join(scripts))}),
            volumes=(Volume(mount="/shared", kind=VolumeKind.CLAIM, source=claim),),
            deadline_seconds=1500.0,
        )
        handle = place.client.submit(job)
        assert handle.wait(1600).phase is Phase.SUCCEEDED
        said = [line.text.decode() for line in handle.logs() if line.rank is None and line.worker is None]
    different = {}
    replaced = {
        rf"\b{job.name}-(?:node-0|worker)-": "node",
        rf"\.{job.name}\.[a-z0-9.-]+": "",
        r"\b[1-9]\d{6}\b": "JOBID",
        r"/\S*/(?=inner\b)": "/",
    }
    for name, lines in _sections(said).items():
        status, *printed = lines
        found = compare_slurm.comparable(printed, int(status), replaced)
        if found != compare_slurm.expected(name):
            changes = difflib.unified_diff(compare_slurm.expected(name), found, lineterm="", n=0)
            different[name] = "\n".join((name, *list(changes)[2:]))
    assert len(_sections(said)) == len(scripts)
    assert different.keys() == DIFFERENT_IN_PODS.keys(), "\n".join(different.values())


def _is_two_by_two(name: str) -> bool:
    text = (compare_slurm.SCRIPTS / f"{name}.sh").read_text()
    return (
        "cpus-per-task=2" not in text and "--ntasks-per-node=2" in text and "csh" not in text.split("\n")[0]
    )


def _sections(lines: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("#### "):
            _, name, status = line.split()
            found[name] = [status]
        elif found:
            found[name].append(line)
    return found
