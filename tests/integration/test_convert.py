"""Jobs of other systems run here once they are converted: real ranks, the world that the source asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mpijob import Client, MPIJob, Phase
from mpijob.client.convert.convert_jobs import convert
from mpijob.formats.jobfile import jobfile_reader

from .support import PATIENCE, said, succeeded

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    place.mkdir()
    return place


def placed(text: str, folder: Path) -> MPIJob:
    """Return the one job of a script that lies in a folder, as `mpijob convert` writes it."""
    (one,) = convert(text, file="x.sbatch", moved=str(folder), folder=str(folder))
    (job,) = one.jobs
    return job.replace(grace_seconds=1.0, resources=job.resources.replace(cpu="500m"))


@pytest.mark.parametrize("options", ["", "--mca mpi_show_mca_params none"])
def test_a_script_that_compiles_and_runs_does_so_in_one_job_with_one_library(
    client: Client, folder: Path, options: str
) -> None:
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    text = (folder / "heat.sbatch").read_text().replace("mpirun", f"mpirun {options}")
    job = succeeded(client, placed(text, folder))
    assert said(job)[0] == ["2474 degrees have come into the rod, in 4 pieces"]
    assert [one.path for one in client.artifacts("heat")] == ["heat"]


def test_of_all_ranks_one_prepares_and_the_others_wait_for_it(client: Client, folder: Path) -> None:
    (folder / "Makefile").write_text("all:\n\tsleep 1; echo made >> made.txt\n")
    script = "#!/bin/bash\n#SBATCH -J once -N 2 -n 4 --mem=128M\nmake all\nsrun cat made.txt\n"
    lines = said(succeeded(client, placed(script, folder)))
    assert sorted(lines) == [0, 1, 2, 3]
    assert sum(line == "made" for rank in lines.values() for line in rank) == 4, "made once, seen by each"


def test_a_program_that_cannot_be_compiled_ends_the_job_with_what_the_compiler_says(
    client: Client, folder: Path
) -> None:
    (folder / "heat.c").write_text("int main( {")
    script = "#!/bin/bash\n#SBATCH -J broken -N 2 --mem=128M\nmpicc -o heat heat.c\nmpirun ./heat\n"
    job = client.submit(placed(script, folder))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    every = [line for rank in said(job).values() for line in rank]
    assert any("error" in line for line in every)
    assert not any("heat: No such file" in line for line in every)
    cause = job.diagnose().findings[0]
    assert (cause.code, cause.message[:35]) == ("COMPILE_ERROR", "The compiler refused heat.c, line 1")


def test_behind_set_e_a_line_that_fails_ends_every_rank_with_its_status(client: Client, folder: Path) -> None:
    (folder / "Makefile").write_text("all:\n\techo made\n")
    head = "#!/bin/bash\n#SBATCH -J strict -N 2 -n 4 --mem=128M\nset -euo pipefail\n"
    script = f"{head}make all\ncp params.default params.in\nsrun echo started\n"
    job = client.submit(placed(script, folder))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    assert {rank.exit_code for rank in job.state().ranks} == {1}
    every = [line for rank in said(job).values() for line in rank]
    assert any("params.default" in line for line in every)
    assert "started" not in every


def test_jobs_of_one_script_hand_files_on_through_the_volume_that_the_report_names(
    client: Client, folder: Path
) -> None:
    (folder / "make.py").write_text("open('/shared/in.txt', 'w').write('handed on')\n")
    script = "#!/bin/bash\n#SBATCH -J hand -N 2 --mem=128M\npython make.py\nsrun cat /shared/in.txt\n"
    (one,) = convert(script, file="x.sbatch", moved=str(folder), folder=str(folder))
    (todo,) = [entry.todo for entry in one.entries if "volumes:" in entry.todo]
    volume = todo[todo.index("volumes:") : todo.index("]") + 1]
    first, second = (jobfile_reader.read(f"{text}{volume}\n") for text in one.texts)
    client.submit(first.replace(grace_seconds=1.0))
    assert second.after == (first.name,)
    assert said(succeeded(client, second.replace(grace_seconds=1.0))) == {0: ["handed on"], 1: ["handed on"]}


def test_the_lines_of_the_report_let_a_launch_line_read_what_the_one_before_it_wrote(
    client: Client, folder: Path, tmp_path: Path
) -> None:
    (folder / "write.py").write_text(
        "import os; open(f\"part.{os.environ['MPIJOB_RANK']}\", 'w').write('x')\n"
    )
    (folder / "count.py").write_text("import glob; print('files', len(glob.glob('part.*')))\n")
    script = "#!/bin/bash\n#SBATCH -J two -N 2 --mem=128M\nsrun python write.py\nsrun -n 1 python count.py\n"
    (one,) = convert(script, file="x.sbatch", moved=str(folder), folder=str(folder))
    assert one.entries[0].note.endswith("it finds nothing, or what the folder had before")
    jobs = []
    for text, job in zip(one.texts, one.jobs, strict=True):
        lines = one.entries[0].todo.split(f"into {job.name} ")[1].split("']; ")[0]
        volume, _, command = lines.partition(" and command: ")
        kept = "".join(line for line in text.splitlines(True) if not line.startswith("command:"))
        jobs.append(jobfile_reader.read(f"{kept}{volume}\ncommand: {command}']\n").replace(grace_seconds=1.0))
    client.submit(jobs[0])
    assert said(succeeded(client, jobs[1]))[0] == ["files 2"]
    place = one.entries[0].todo.split("~/.local/state/mpijob/")[1].split(" ")[0]
    assert sorted(path.name for path in (tmp_path / "home" / place).iterdir()) == ["part.0", "part.1"]


def test_a_program_that_asks_for_its_rank_as_slurm_tells_it_gets_it(client: Client, folder: Path) -> None:
    asked = "os.environ['SLURM_PROCID'], os.getenv('SLURM_LOCALID', '9'), os.environ.get('SLURM_NTASKS', 1)"
    (folder / "who.py").write_text(f"import os\nprint({asked})\n")
    script = "#!/bin/bash\n#SBATCH -J who -N 2 -n 4 --mem=128M\nsrun python who.py\n"
    expected = {rank: [f"{rank} {rank % 2} 4"] for rank in range(4)}
    assert said(succeeded(client, placed(script, folder))) == expected


def test_a_module_of_the_scripts_folder_is_found(client: Client, folder: Path) -> None:
    (folder / "mypkg").mkdir()
    (folder / "mypkg" / "train.py").write_text("print('trained')\n")
    script = "#!/bin/bash\n#SBATCH -J module -N 2 --mem=128M\nsrun python -m mypkg.train\n"
    assert said(succeeded(client, placed(script, folder))) == {0: ["trained"], 1: ["trained"]}


def test_a_converted_mpijob_runs_with_its_world(client: Client) -> None:
    (one,) = convert((EXAMPLES / "pi-mpijob.yaml").read_text())
    job = succeeded(client, small(one.jobs[0]))
    assert said(job) == {rank: [f"rank {rank} of 4"] for rank in range(4)}


def test_shell_words_of_a_launch_line_mean_to_each_rank_what_they_meant_to_slurm(client: Client) -> None:
    (one,) = convert(STEPS, file="steps.sbatch")
    job = succeeded(client, small(one.jobs[0]))
    expected = {rank: [f"{rank}/{rank % 2} deep blue 42 of 4, 3"] for rank in range(4)}
    assert said(job) == expected


def test_a_converted_job_that_goes_back_compiles_in_every_run_and_keeps_the_numbers_of_slurm(
    folder: Path,
) -> None:
    """Slurm is a script here that starts two ranks: each run has a number, and the directory stays."""
    line = "srun bash -c 'cat made; echo $SLURM_JOB_ID $SLURM_SUBMIT_DIR'"
    script = f"#!/bin/bash\n#SBATCH -J back -N 2\nmake all\n{line}\n"
    (folder / "Makefile").write_text("all:\n\tcp in.txt made\n")
    (folder / "srun").write_text('#!/bin/bash\n"$@" & "$@"; wait\n')
    (folder / "srun").chmod(0o755)
    (there,) = convert(script, file="x.sbatch")
    (back,) = convert(there.texts[0], to="sbatch")
    for number in ("17", "18"):
        (folder / "in.txt").write_text(f"made in {number}\n")
        env = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": number, "SLURM_SUBMIT_DIR": "/from"}
        run = subprocess.run(
            ["bash", "-c", back.texts[0]], cwd=folder, env=env, capture_output=True, text=True, timeout=60
        )
        lines = [line for line in run.stdout.splitlines() if not line.startswith("cp ")]
        assert sorted(lines) == sorted([f"made in {number}", f"{number} /from"] * 2), run.stderr


def test_a_job_written_as_sbatch_and_read_back_runs_as_it_did(client: Client) -> None:
    job = MPIJob(
        name="there-and-back", workers=2, slots=2, command=("sh", "-c", 'echo "$GREETING $MPIJOB_RANK\'s"')
    )
    job = job.replace(env={"GREETING": "it's $HOME"}, resources=job.resources.replace(memory="128Mi"))
    (out,) = convert(jobfile_reader.write(job), to="sbatch")
    (back,) = convert(out.texts[0], file="x.sbatch")
    there, again = (succeeded(client, small(one)) for one in (job, back.jobs[0].replace(name="again")))
    assert said(there) == said(again) == {rank: [f"it's $HOME {rank}'s"] for rank in range(4)}
