"""What a converted script was meant to leave is there when its jobs have run: no result is lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpijob import Client, MPIJob, Phase
from mpijob.client.convert.convert_jobs import Conversion, Stage, convert
from mpijob.formats.jobfile import jobfile_reader

from .support import PATIENCE, said, succeeded

pytestmark = [pytest.mark.engine, pytest.mark.req("C-hpc", "D-migrate")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    place.mkdir()
    return place


def converted(body: str, folder: Path, head: str = "-J work -N 1 -n 2 --mem=128M") -> Conversion:
    script = f"#!/bin/bash\n#SBATCH {head}\n{body}\n"
    (one,) = convert(script, file="x.sbatch", moved=str(folder), folder=str(folder))
    return one


def quick(job: MPIJob) -> MPIJob:
    return job.replace(grace_seconds=1.0, resources=job.resources.replace(cpu="500m"))


def test_the_result_of_work_in_a_scratch_directory_is_fetched_as_the_report_says(
    client: Client, folder: Path, tmp_path: Path
) -> None:
    (folder / "data.txt").write_text("1 2 3")
    text = "open('result.txt', 'w').write(str(sum(map(int, open('data.txt').read().split()))))\n"
    (folder / "stats.py").write_text(text)
    scratch = tmp_path / "scratch"
    one = converted(
        f"SCRATCH={scratch}/$SLURM_JOB_ID\nmkdir -p $SCRATCH\ncd $SCRATCH\n"
        "cp $SLURM_SUBMIT_DIR/stats.py $SLURM_SUBMIT_DIR/data.txt .\nsrun python stats.py\n"
        "cp result.txt $SLURM_SUBMIT_DIR\ncd $SLURM_SUBMIT_DIR\nrm -rf $SCRATCH",
        folder,
    )
    (job,) = one.jobs
    succeeded(client, quick(job))
    assert any("mpijob artifacts fetch work result.txt" in entry.todo for entry in one.entries)
    assert [each.path for each in client.artifacts("work")] == ["result.txt"]
    client.fetch("work", tmp_path / "back", paths=["result.txt"])
    assert (tmp_path / "back" / "result.txt").read_text() == "6"
    assert not scratch.exists()


def test_a_launch_line_that_takes_longer_than_its_timeout_is_ended(client: Client, folder: Path) -> None:
    (job,) = converted("timeout 1 srun sleep 60", folder).jobs
    state = client.submit(quick(job)).wait(PATIENCE)
    assert (state.phase, state.reason) == (Phase.FAILED, "DeadlineExceeded")


def test_a_file_that_is_read_from_is_read_by_rank_0(client: Client, folder: Path) -> None:
    (folder / "in.txt").write_text("handed in\n")
    one = converted("mpirun -n 1 cat < in.txt", folder)
    assert one.stage is Stage.READY
    assert said(succeeded(client, quick(one.jobs[0]))) == {0: ["handed in"]}


def test_output_that_a_later_line_reads_is_there_when_the_report_is_followed(
    client: Client, folder: Path
) -> None:
    one = converted("srun -n 1 echo written > a.txt && srun -n 1 cat a.txt", folder)
    (told,) = [entry.todo for entry in one.entries if entry.blocks]
    assert "mpijob logs work-1 --no-prefix --stream stdout > a.txt" in told
    first, second = (quick(job) for job in one.jobs)
    lines = said(succeeded(client, first))[0]
    (folder / "a.txt").write_text("\n".join(lines) + "\n")
    assert said(succeeded(client, second)) == {0: ["written"]}


def test_the_lines_of_the_report_let_serial_jobs_and_a_launch_line_share_files(
    client: Client, folder: Path
) -> None:
    (folder / "in.txt").write_text("a b")
    (folder / "split.py").write_text(
        "import sys\nfor at, word in enumerate(open(sys.argv[1]).read().split()):\n"
        "    open(f'parts/{at}', 'w').write(word)\n"
    )
    rank = "os.environ['MPIJOB_RANK']"
    (folder / "work.py").write_text(
        f"import os\nword = open('parts/' + {rank}).read()\nopen('parts/' + {rank}, 'w').write(word.upper())\n"
    )
    (folder / "merge.py").write_text("print(open('parts/0').read() + open('parts/1').read())\n")
    body = "X=$HOME\nmkdir -p parts\npython split.py in.txt\nsrun python work.py\npython merge.py"
    one = converted(body, folder)
    jobs = [quick(_followed(job, one.entries[0].todo)) for job in one.jobs]
    for job in jobs[:-1]:
        client.submit(job)
    assert said(succeeded(client, jobs[-1])) == {0: ["AB"]}


def _followed(job: MPIJob, todo: str) -> MPIJob:
    """Return a job with the lines that the report gives for it."""
    part = todo.split(f"into {job.name} ")[1]
    volume = part[: part.index("]") + 1]
    line = part.split(": cd /shared")[1].split("; into ")[0].split("; the folder's")[0]
    file = job.command[-1]
    kept = job.code.files[file].rstrip("\n").split("\n")[:-1]
    script = "\n".join([*kept, f"cd /shared{line}", ""])
    named = jobfile_reader.read(f"name: x\ncommand: [x]\n{volume}\n")
    return job.replace(volumes=named.volumes, code=job.code.replace(files={file: script}))
