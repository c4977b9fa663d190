"""An MPIJob of the MPI Operator, moved: the old one and the converted ones run side by side and say the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.e2e.cluster.support import LAUNCHER, PATIENCE, SMALL, Place, image, own_place

from mpijob import Job, MPIJob, Phase
from mpijob.backends.kubernetes.preflight.preflight import PLAIN_USER
from mpijob.client.convert.convert_jobs import convert
from mpijob.formats.jobfile import jobfile_reader
from mpijob.formats.runtimes import builtin

pytestmark = pytest.mark.req("D-migrate")
SUM = "from mpi4py import MPI; c = MPI.COMM_WORLD; print('sum', c.allreduce(c.rank + 1), 'of', c.size)"


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "convert") as place:
        yield place


def old_job() -> dict[str, Any]:
    """Return an MPIJob as somebody wrote it by hand, its launcher with an mpirun of its own."""
    one = msgspec.structs.replace(builtin.shipped("mpich"), name="old", resources=SMALL)
    document: dict[str, Any] = json.loads(
        json.dumps(builtin.document(one, image=image("mpich"), user=PLAIN_USER))
    )
    document["metadata"] = {"name": "old", "labels": {"team": "cv"}}
    return document


def heard(job: Job) -> list[str]:
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED
    return sorted(line.text.decode() for line in job.logs() if "of 2 on" in line.text.decode())


def test_every_mpijob_of_a_namespace_is_converted_and_runs_beside_the_old_one(place: Place) -> None:
    place.apply(old_job())
    done = place.mpijob("convert", "--cluster", "--report", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["file"] == f"{place.namespace}/old"
    assert row["automatic"] >= 0.6
    old = heard(place.client.get("old"))
    (one,) = convert(place.kubectl("get", "mpijobs", "old", "-o", "json"))
    moved = place.client.submit(one.jobs[0].replace(name="moved", launcher=LAUNCHER))
    assert len(heard(moved)) == len(old) == 2
    compared = place.client.compare("old", "moved")
    assert [one.phase for one in compared.jobs] == [Phase.SUCCEEDED, Phase.SUCCEEDED]
    again = json.loads(place.mpijob("convert", "--cluster", "--report", "json").stdout)
    assert (len(again["rows"]), again["moved"]) == (1, 1), "one to move, one moved"


def summed(job: Job) -> list[str]:
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED
    return [line.text.decode() for line in job.logs() if line.text.startswith(b"sum ")]


@pytest.mark.req("AC1")
def test_a_job_runs_as_a_trainjob_that_kubectl_applies(place: Place) -> None:
    small = MPIJob(
        name="applied", workers=2, command=("python3", "-c", SUM), resources=SMALL, launcher=LAUNCHER
    )
    text = jobfile_reader.write(small.replace(namespace=place.namespace))
    (one,) = convert(text, to="trainjob", image=image("openmpi4"))
    runtime, job = yaml.safe_load_all(one.texts[0])
    place.apply_job(job, runtime)
    assert summed(place.client.get("applied")) == ["sum 3 of 2"] * 2


@pytest.mark.req("C-hpc")
def test_a_converted_batch_script_runs_on_the_cluster(place: Place) -> None:
    script = f"#!/bin/bash\n#SBATCH -J summed -N 2 --mem=160M\nsrun python3 -c {json.dumps(SUM)}\n"
    (one,) = convert(script, moved=None)
    (job,) = one.jobs
    job = job.replace(image=image("openmpi4"), resources=SMALL, launcher=LAUNCHER)
    assert summed(place.client.submit(job)) == ["sum 3 of 2"] * 2
