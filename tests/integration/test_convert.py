"""Scripts and manifests of other systems run here once converted: the steps, worlds and lines of the source."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mpijob import Client, Job, MPIJob, Phase
from mpijob.client.convert.convert_jobs import convert
from mpijob.formats.jobfile import jobfile_reader

from .support import PATIENCE, said, succeeded

pytestmark = [pytest.mark.engine, pytest.mark.req("C-hpc", "D-migrate")]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "migration"
SCRIPTS = ROOT / "tests" / "fixtures" / "scripts"
LINES: dict[str, list[str]] = {
    "hybrid.sbatch": ["Hybrid_Run on 2 nodes", *(f"rank {rank} of 4, 2 threads" for rank in range(4))],
    "sizes.sbatch": ["1 ranks add up to 1", "2 ranks add up to 3", "4 ranks add up to 10"],
    "background.sbatch": [
        *(f"{part} {rank} of 2" for part in ("left", "right") for rank in range(2)),
        *(f"all {rank} of 4" for rank in range(4)),
    ],
    "mpmd.sbatch": ["master", *["worker"] * 3, "first", *["rest"] * 3],
    "pipe.sbatch": ["replaced SOL", "mdrun 0", "mdrun 1"],
    "pals.pbs": [
        "Stream_Test NUM_OF_NODES=2 TOTAL_NUM_RANKS=4",
        *(f"threads {rank}" for rank in range(4)),
    ],
    "handover.sbatch": ["made by 0", "made by 1"],
    "arguments.sbatch": ["wing steps=12 rank=0", "wing steps=12 rank=1"],
    "options.sbatch": [*(f"{rank}: from an array" for rank in range(3)), *["from a variable"] * 2],
}
STEPS = {
    "hybrid.sbatch": [4], "sizes.sbatch": [1, 2, 4], "background.sbatch": [2, 2, 4], "mpmd.sbatch": [4, 4],
    "pipe.sbatch": [2, 2], "pals.pbs": [4], "handover.sbatch": [2, 1], "arguments.sbatch": [2],
    "options.sbatch": [3, 2],
}  # fmt: skip


def small(job: MPIJob) -> MPIJob:
    return job.replace(grace_seconds=1.0, queue="", resources=job.resources.replace(cpu="500m"))


def placed(text: str, folder: Path, name: str = "x.sbatch") -> MPIJob:
    """Return the job of a script that lies in a folder, as `mpijob convert` writes it."""
    (folder / name).write_text(text)
    (one,) = convert(text, file=name, moved=str(folder), folder=str(folder))
    (job,) = one.jobs
    return small(job)


def printed(job: Job) -> list[str]:
    """Return the lines of script and ranks alike, without what mpijob itself says."""
    lines = (line.text.decode().rstrip("\n") for line in job.logs())
    return sorted(line for line in lines if not line.startswith("mpijob: "))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    place.mkdir()
    return place


@pytest.mark.parametrize("name", LINES)
def test_a_script_prints_what_it_prints_under_its_batch_system(
    client: Client, folder: Path, name: str
) -> None:
    shutil.copytree(SCRIPTS, folder, dirs_exist_ok=True)
    job = placed((SCRIPTS / name).read_text(), folder, name)
    if name == "arguments.sbatch":
        job = job.replace(args=("wing", "12"))
    done = succeeded(client, job)
    assert printed(done) == sorted(LINES[name])
    assert sorted(step.ranks for step in done.state().steps) == sorted(STEPS[name])


def test_a_script_that_is_given_too_few_arguments_fails_with_its_own_status(
    client: Client, folder: Path
) -> None:
    job = client.submit(placed((SCRIPTS / "arguments.sbatch").read_text(), folder))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    assert printed(job) == ["usage: sbatch ./x.sbatch CASE STEPS"]


def test_each_job_of_an_array_finds_its_number(client: Client, folder: Path) -> None:
    text = (SCRIPTS / "array.sbatch").read_text()
    (folder / "x.sbatch").write_text(text)
    (one,) = convert(text, file="x.sbatch", moved=str(folder), folder=str(folder))
    jobs = client.array(small(one.jobs[0]), {key: list(values) for key, values in one.values.items()})
    found = []
    for job in jobs:
        job.wait_for_completion(PATIENCE)
        found += printed(job)
    assert found == [f"member {task} of 3 seed {10 + task}" for task in (1, 3, 5) for _ in range(2)]


def test_the_examples_of_the_documentation_run_as_they_are(client: Client, folder: Path) -> None:
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    pi = succeeded(client, placed((EXAMPLES / "pi.sbatch").read_text(), folder, "pi.sbatch"))
    assert "pi is about 3.1, by 4 ranks" in printed(pi)
    heat = succeeded(client, placed((EXAMPLES / "heat.sbatch").read_text(), folder, "heat.sbatch"))
    assert printed(heat) == ["2474 degrees have come into the rod, in 4 pieces"]


def test_behind_set_e_a_line_that_fails_ends_the_job_with_its_status(client: Client, folder: Path) -> None:
    head = "#!/bin/bash\n#SBATCH -J strict -n 2 --mem=128M\nset -euo pipefail\n"
    job = client.submit(placed(f"{head}cp params.default params.in\nsrun echo started\n", folder))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    (line,) = printed(job)
    assert "params.default" in line


def test_what_a_script_does_when_a_step_has_failed_is_its_own(client: Client, folder: Path) -> None:
    head = "#!/bin/bash\n#SBATCH -J tries -n 2 --mem=128M\n"
    body = "srun -n 2 sh -c 'exit 3' || echo rescued after $?\nsrun -n 1 echo again\n"
    lines = printed(succeeded(client, placed(f"{head}{body}", folder)))
    failed = [f"srun: error: tries-worker-0: task {rank}: Exited with exit code 3" for rank in (0, 1)]
    assert lines == sorted(["again", "rescued after 3", *failed])


def test_a_converted_mpijob_runs_with_its_world(client: Client) -> None:
    (one,) = convert((EXAMPLES / "pi-mpijob.yaml").read_text())
    job = succeeded(client, small(one.jobs[0]).replace(image=""))
    assert said(job) == {rank: [f"rank {rank} of 4"] for rank in range(4)}


def test_a_script_that_goes_to_slurm_and_back_runs_as_it_did(client: Client, folder: Path) -> None:
    shutil.copytree(SCRIPTS, folder, dirs_exist_ok=True)
    there = placed((SCRIPTS / "hybrid.sbatch").read_text(), folder, "hybrid.sbatch")
    (out,) = convert(jobfile_reader.write(there), to="sbatch", folder=str(folder))
    back = placed(out.texts[0], folder, "back.sbatch").replace(name="back")
    assert printed(succeeded(client, back)) == sorted(LINES["hybrid.sbatch"])


def test_a_job_written_as_sbatch_runs_as_a_script(client: Client, folder: Path) -> None:
    job = MPIJob(name="there", workers=2, slots=2, command=("sh", "-c", 'echo "$GREETING $MPIJOB_RANK\'s"'))
    job = job.replace(env={"GREETING": "it's $HOME"}, resources=job.resources.replace(memory="128Mi"))
    (out,) = convert(jobfile_reader.write(job), to="sbatch")
    there = succeeded(client, small(job))
    again = succeeded(client, placed(out.texts[0], folder).replace(name="again"))
    assert printed(there) == printed(again) == [f"it's $HOME {rank}'s" for rank in range(4)]
