"""Jobs of other systems run here once they are converted: real ranks, the world that the source asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpijob import Client, MPIJob
from mpijob.client.converting import convert
from mpijob.dialects import jobfile

from .support import said, succeeded

pytestmark = [pytest.mark.engine, pytest.mark.req("C-hpc", "D-migrate")]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "migration"
STEPS = """#!/bin/bash
#SBATCH -J steps -N 2 --ntasks-per-node=2 --mem=128M
#SBATCH --array=3-4
export COLOUR='deep blue'
N=$((40 + 2))
mkdir -p made/here
srun bash -c 'test -d made/here && echo "$SLURM_PROCID/$SLURM_LOCALID $COLOUR '$N' of '$SLURM_NTASKS', \\
$SLURM_ARRAY_TASK_ID"'
"""


def small(job: MPIJob) -> MPIJob:
    return job.replace(
        grace_seconds=1.0,
        resources=job.resources.replace(cpu="500m"),
        queue="",
        code=job.code.replace(path=""),
    )


def test_a_converted_batch_script_runs_with_its_ranks_variables_and_files(client: Client) -> None:
    (one,) = convert((EXAMPLES / "pi.sbatch").read_text(), file="pi.sbatch")
    job = succeeded(client, small(one.jobs[0]))
    assert said(job)[0] == ["pi is about 3.1, by 4 ranks"]


def test_a_converted_mpijob_runs_with_its_world(client: Client) -> None:
    (one,) = convert((EXAMPLES / "pi-mpijob.yaml").read_text())
    job = succeeded(client, small(one.jobs[0]))
    assert said(job) == {rank: [f"rank {rank} of 4"] for rank in range(4)}


def test_shell_words_of_a_launch_line_mean_to_each_rank_what_they_meant_to_slurm(client: Client) -> None:
    (one,) = convert(STEPS, file="steps.sbatch")
    job = succeeded(client, small(one.jobs[0]))
    expected = {rank: [f"{rank}/{rank % 2} deep blue 42 of 4, 3"] for rank in range(4)}
    assert said(job) == expected


def test_a_job_written_as_sbatch_and_read_back_runs_as_it_did(client: Client) -> None:
    job = MPIJob(
        name="there-and-back", workers=2, slots=2, command=("sh", "-c", 'echo "$GREETING $MPIJOB_RANK\'s"')
    )
    job = job.replace(env={"GREETING": "it's $HOME"}, resources=job.resources.replace(memory="128Mi"))
    (out,) = convert(jobfile.write(job), to="sbatch")
    (back,) = convert(out.texts[0], file="x.sbatch")
    there, again = (succeeded(client, small(one)) for one in (job, back.jobs[0].replace(name="again")))
    assert said(there) == said(again) == {rank: [f"it's $HOME {rank}'s"] for rank in range(4)}
