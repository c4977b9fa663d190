"""A script as a job: it runs once, and each launcher in it is a step over the job's workers, with every real MPI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools import compare_slurm

from mpijob import Client, Job, MPIJob
from mpijob.accounting import build
from mpijob.backends.local import LocalBackend
from mpijob.cli.root import cli
from mpijob.errors import InvalidJob
from mpijob.model import Code, Family, Phase, Resources
from mpijob.settings import ModuleSetting, Settings

from .support import emptied_client, said, succeeded

pytestmark = pytest.mark.engine

ROOMY = Resources(cpu="500m", memory="512Mi")
SIZE = "python -c 'from mpi4py import MPI; print(MPI.COMM_WORLD.size)'"


def script_job(name: str, text: str, **given: Any) -> MPIJob:
    fields: dict[str, Any] = {
        "workers": 2,
        "slots": 2,
        "resources": ROOMY,
        "grace_seconds": 1.0,
        "script": "run.sh",
    } | given
    return MPIJob(name=name, code=Code(files={"run.sh": text}), **fields)


def launcher_lines(job: Job) -> list[str]:
    return [line.text.decode() for line in job.logs() if line.rank is None and line.worker is None]


def test_steps_have_their_worlds_and_the_script_its_own_output(client: Client, family: str) -> None:
    text = f"""#!/bin/bash
export GREETING=hallo
echo "$0 $1 on $(hostname) of $SLURM_NNODES: $(scontrol show hostnames | tail -1)"
mpirun -n 4 sh -c 'echo $SLURM_PROCID $GREETING $SLURMD_NODENAME'
mpiexec -n 2 {SIZE} > sizes.txt
cat sizes.txt
echo 3 | mpirun -np 1 sh -c 'read x; echo got $x' | sed 's/got/piped/'
mpirun -n 1 sh -c 'exit 7'
echo "status $?"
"""
    job = succeeded(client, script_job("steps", text, mpi=family, args=("one",)))
    assert launcher_lines(job)[:4] == [
        "./run.sh one on steps-worker-0 of 2: steps-worker-1", "2", "2", "piped 3",
    ]  # fmt: skip
    assert "status 7" in launcher_lines(job)
    assert said(job) == {rank: [f"{rank} hallo steps-worker-{rank // 2}"] for rank in range(4)}
    steps = job.state().steps
    assert [(one.number, one.name, one.ranks, one.workers, one.exit_code) for one in steps] == [
        (0, "mpirun", 4, (0, 1), 0),
        (1, "mpiexec", 2, (0,), 0),
        (2, "mpirun", 1, (0,), 0),
        (3, "mpirun", 1, (0,), 7),
    ]
    assert all(one.finished is not None and one.finished >= one.started for one in steps)
    assert {line.rank for line in job.logs(steps=[0])} == {0, 1, 2, 3}
    assert [*job.logs(steps=[1])] == []


def test_srun_lays_its_tasks_out_as_slurm_does(client: Client, family: str) -> None:
    text = """#!/bin/bash
exec 2>&1
show='echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURMD_NODENAME'
srun -N2 -n3 sh -c "$show" | sort
srun --ntasks-per-no=2 -n2 --nodes 1 sh -c "$show" | sort
srun -n4 --distribution=cyclic sh -c "$show" | sort
srun -n2 -N1 -w laid-worker-1 sh -c "$show" | sort
srun -n2 -o 'r%t.txt' sh -c "$show"; cat r0.txt r1.txt
srun -l -n2 echo labelled | sort
printf '0 echo first %%t\\n1-3 echo other %%o\\n' > conf; srun -n4 --multi-prog conf | sort
srun -n5 true; echo "too many: $?"
srun --nosuch true; echo "unknown: $?"
"""
    job = succeeded(client, script_job("laid", text, mpi=family))
    zero, one = "laid-worker-0", "laid-worker-1"
    assert launcher_lines(job) == [
        f"0/3 0 {zero}", f"1/3 1 {zero}", f"2/3 0 {one}",
        f"0/2 0 {zero}", f"1/2 1 {zero}",
        f"0/4 0 {zero}", f"1/4 0 {one}", f"2/4 1 {zero}", f"3/4 1 {one}",
        f"0/2 0 {one}", f"1/2 1 {one}",
        f"0/2 0 {zero}", f"1/2 0 {one}",
        "0: labelled", "1: labelled",
        "first 0", "other 0", "other 1", "other 2",
        "mpijob: srun: 5 tasks are asked for, and the job has 4 slots on 2 workers", "too many: 1",
        "mpijob: srun: unrecognized option '--nosuch'", 'Try "srun --help" for more information', "unknown: 255",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", [name for name in compare_slurm.names() if name != "csh"]
)  # tcsh is no tool of ours
def test_a_script_prints_what_it_printed_on_a_real_slurm(client: Client, name: str) -> None:
    assert compare_slurm.on_local_engine(client, compare_slurm.job(name, "mpich")) == compare_slurm.expected(
        name
    )


def test_a_step_counts_its_threads_by_its_own_cores(client: Client) -> None:
    text = """#!/bin/bash
echo "script ${OMP_NUM_THREADS:-unset}"
srun -n1 sh -c 'echo $OMP_NUM_THREADS'
srun -n1 -c4 sh -c 'echo $OMP_NUM_THREADS'
OMP_NUM_THREADS=3 srun -n1 -c4 sh -c 'echo $OMP_NUM_THREADS'
mpirun -n 1 sh -c 'echo $OMP_NUM_THREADS'
"""
    wanted = script_job(
        "threads", text, cores_per_rank=2, resources=Resources(cpu="2", memory="512Mi"), slots=1
    )
    lines = [line.text.decode() for line in succeeded(client, wanted).logs()]
    told = "mpijob: srun -c 4: a worker has 2 cores; set cpu"
    assert [line for line in lines if line != told] == ["script unset", "2", "4", "3", "2"]
    assert lines.count(told) == 1


def test_a_refused_step_leaves_its_slots_to_the_next(client: Client) -> None:
    text = """#!/bin/bash
srun -n4 --multi-prog nosuch; echo "refused $?"
srun -n4 true; echo "next $?"
"""
    lines = launcher_lines(succeeded(client, script_job("refused", text)))
    assert [line for line in lines if not line.startswith("mpijob: ")] == ["refused 1", "next 0"]


def test_steps_in_the_background_share_the_slots(client: Client) -> None:
    text = """#!/bin/bash
for i in 1 2 3 4 5 6; do srun -n2 --exact sh -c '[ $SLURM_PROCID = 1 ] || { date +%s.%N >> begun; sleep 0.4; }' & done
wait
cat begun
"""
    job = succeeded(client, script_job("crowd", text))
    assert len(job.state().steps) == 6
    begun = sorted(float(line) for line in launcher_lines(job) if line[0].isdigit())
    assert len(begun) == 6
    assert all(later - first > 0.3 for first, later in zip(begun, begun[2:], strict=False))


def test_the_script_decides_and_a_failed_step_names_itself(client: Client, family: str) -> None:
    text = f"""#!/bin/bash
mpirun -n 2 python -c 'from mpi4py import MPI; raise ValueError("first")' 2> /dev/null || echo handled
set -e
mpirun -n 2 {SIZE}
mpirun -n 4 python -c '
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 2: raise ValueError("mesh has no cells")
MPI.COMM_WORLD.Barrier()'
echo never
"""
    job = client.submit(script_job("fails", text, mpi=family))
    assert job.wait(120).phase is Phase.FAILED
    assert "handled" in launcher_lines(job)
    assert "never" not in launcher_lines(job)
    first = job.diagnose().findings[0]
    assert (first.code, first.rank) == ("PYTHON_EXCEPTION", 2)
    assert "mesh has no cells" in first.message
    assert first.evidence[0].startswith("step 2, mpirun -n 4 python")
    failed = job.state().steps[-1]
    assert (failed.exit_code, failed.failed_rank) != (0, None)


def test_a_script_that_goes_on_after_a_failed_step_says_which_one_failed(client: Client) -> None:
    job = succeeded(client, script_job("goes-on", "#!/bin/sh\nmpirun -n 2 false\nmpirun -n 2 true\n"))
    ended = "the script ended with 0; step 0 ended with 1"
    assert job.state().message == ended
    assert job.diagnose().summary == f"Succeeded: {ended}."


def test_what_scripts_ask_of_a_batch_system_is_answered(client: Client) -> None:
    text = """#!/bin/bash
exec 2>&1  # in the order of the script
squeue -h -j $SLURM_JOB_ID -o "%j %t %D"
[ $((SLURM_JOB_ID + 0)) = ${PBS_JOBID%%.*} ] && echo number
wc -l < $PBS_NODEFILE; head -1 $PBS_NODEFILE
[ "$PWD" = "$SLURM_SUBMIT_DIR" ] && cd "$PBS_O_WORKDIR" && echo here
scontrol show hostnames 'a[08-10,12],b-[1-2]-x' | tr '\\n' ' '; echo
module load openmpi; module load gcc; echo "modules $?"
sbatch next.sh || echo refused
srun -n1 true; sacct | tail -1 | cut -d'|' -f2-
"""
    job = succeeded(client, script_job("asks", text))
    assert launcher_lines(job) == [
        "asks R 2", "number", "4", "asks-worker-0", "here", "a08 a09 a10 a12 b-1-x b-2-x ",
        "mpijob: module load openmpi: environment modules are not available, installed programs are used", "modules 0",
        "mpijob: sbatch is not here: submit what follows as a job of its own: mpijob create SCRIPT --after asks",
        "refused", "srun|COMPLETED|0:0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("#!/usr/bin/env python3\nimport sys\nprint('python', sys.argv[1:])\n", "python ['a b', 'c']"),
        ('#! /bin/sh -e\necho "$1|$2"; false; echo never\n', "a b|c"),
        ('echo ${BASH_VERSION:+bash} "$2"\n', "bash c"),
        ('#!/bin/bash -l\nsrun -n1 echo "$0 $2" | cat\n', "./run.sh c"),
        ("#!/bin/bash -el\nsrun -n1 echo one | cat; false; echo never\n", "one"),
    ],
    ids=["python", "with an option", "no interpreter named", "a login shell", "a login shell with an option"],
)
def test_a_script_runs_by_its_own_interpreter(
    client: Client, head: str, expected: str, tmp_path: Path
) -> None:
    home = {"HOME": str(tmp_path)}  # a login shell reads whatever profile its user has
    job = client.submit(script_job("interpreted", head, workers=1, slots=1, args=("a b", "c"), env=home))
    job.wait(60)
    assert launcher_lines(job) == [expected]


def test_launchers_are_steps_too_where_a_script_sets_its_path_anew(client: Client) -> None:
    text = """#!/bin/bash
exec 2>&1
PATH=/usr/bin:/bin
ibrun -n 2 sleep 60 &
until [ -e $MPIJOB_STEPS/0/pid ]; do sleep 0.1; done
kill $!
wait
ibrun -n 3 ./none
echo "status $?"
no_such_program
echo "status $?"
"""
    job = succeeded(client, script_job("profile", text))
    assert [(one.name, one.ranks) for one in job.state().steps] == [("ibrun", 2), ("ibrun", 3)]
    lines = [line for line in launcher_lines(job) if line.startswith(("status", "./run.sh"))]
    # 255 is hydra's own for a program that is not there
    assert lines == ["status 255", "./run.sh: line 10: no_such_program: command not found", "status 127"]


def test_a_header_without_tasks_is_one_of_a_site_that_gives_whole_nodes(client: Client) -> None:
    text = """#!/bin/bash
#SBATCH --nodes=1
srun -n 3 sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS' | sort
"""
    job = script_job("whole", text, workers=1, slots=1)
    told, *tasks = launcher_lines(succeeded(client, job))
    assert "3 tasks share 1 slots" in told
    assert tasks == ["0 of 3", "1 of 3", "2 of 3"]
    asked = text.replace("--nodes=1", "--nodes=1 -n 1").replace(" | sort", "; echo status $?")
    refused = job.replace(name="asked", code=Code(files={"run.sh": asked}))
    assert "status 1" in launcher_lines(succeeded(client, refused))


def test_the_tasks_of_a_step_see_all_gpus_of_their_worker_unless_each_is_to_have_its_own(
    settings: Settings,
) -> None:
    show = "sh -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES' | sort"
    text = f"""#!/bin/bash
echo "script $CUDA_VISIBLE_DEVICES $SLURM_GPUS_PER_NODE"
srun -n4 {show}
srun -n4 --gpus-per-task=1 {show}
"""
    job = script_job("gpus", text, resources=ROOMY.replace(gpu=2))
    header = job.replace(
        name="header",
        code=Code(files={"run.sh": f"#!/bin/bash\n#SBATCH --gpu-bind=single:1\nsrun -n4 {show}\n"}),
    )
    with_gpus = msgspec.structs.replace(settings, gpus=4)
    with Client(LocalBackend(with_gpus), settings=with_gpus) as client:
        shared, apart = ["0 0,1", "1 0,1", "2 2,3", "3 2,3"], ["0 0", "1 1", "2 2", "3 3"]
        assert launcher_lines(succeeded(client, job)) == ["script 0,1 2", *shared, *apart]
        assert launcher_lines(succeeded(client, header)) == apart


def test_a_rank_cannot_start_steps_and_scancel_cancels_the_job(client: Client) -> None:
    text = """#!/bin/bash
mpirun -n 1 mpirun -n 1 true; echo "nested $?"
scancel $SLURM_JOB_ID
sleep 60
"""
    job = client.submit(script_job("ends", text))
    assert job.wait(60).phase is Phase.CANCELLED
    assert "nested 1" in launcher_lines(job)
    assert any("a step cannot start steps" in line.text.decode() for line in job.logs())


def programs_without(folder: Path, *names: str) -> str:
    """Return a PATH with every program of this machine but these."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(":")):
        for program in Path(place).glob("*"):
            (folder / program.name).unlink(missing_ok=True)
            (folder / program.name).symlink_to(program)
    for name in names:
        (folder / name).unlink(missing_ok=True)
    return str(folder)


def test_a_program_in_a_container_runs_as_it_is_found_where_apptainer_is_not_installed(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs_without(tmp_path / "bin", "apptainer", "singularity"))
    text = """#!/bin/bash
apptainer exec --nv -B /data:/data --env GREETING=hi,NAME=you --pwd /usr app.sif sh -c 'echo $GREETING $NAME $PWD'
mpirun -n 2 singularity exec --bind /scratch app.sif sh -c 'echo rank $SLURM_PROCID'
apptainer pull docker://x/y; echo "pull $?"
apptainer exec --env-file vars app.sif true; echo "file $?"
"""
    job = succeeded(client, script_job("without", text))
    assert said(job) == {0: ["rank 0"], 1: ["rank 1"]}
    printed = launcher_lines(job)
    assert [line for line in printed if not line.startswith("mpijob:")] == ["hi you /usr", "pull 1", "file 1"]
    assert len([line for line in printed if "not installed here, so" in line]) == 1
    assert job.state().steps[0].ranks == 2


def test_a_container_program_that_is_installed_runs_as_it_is(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho real $*\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    job = succeeded(
        client, script_job("with", "#!/bin/bash\napptainer exec a.sif true\nmpirun -n 2 apptainer version\n")
    )
    assert launcher_lines(job) == ["real exec a.sif true"]
    assert said(job) == {0: ["real version"], 1: ["real version"]}


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"command": ("true",)}, "both command and script"),
        ({"script": "/etc/profile"}, "outside"),
        ({"script": "../run.sh"}, "outside"),
        ({"script": "none.sh"}, "no file 'none.sh'"),
    ],
)
def test_a_script_that_cannot_be_meant_is_refused(client: Client, fields: dict[str, Any], word: str) -> None:
    job = script_job("wrong", "true\n").replace(**fields)
    with pytest.raises(InvalidJob, match=word):
        client.submit(job)


def test_a_script_runs_with_the_mpi_of_the_programs_that_it_starts(
    client: Client, tmp_path: Path, mpi_directories: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "solver"
    program.symlink_to(
        Path(mpi_directories["openmpi"], "bin", "ompi_info")
    )  # a program that is linked to libmpi
    monkeypatch.chdir(tmp_path)
    for line in (f"mpirun -n 2 {program}", f"if true; then srun -n2 {program} 100; fi"):
        plan = client.plan(script_job("linked", f"#!/bin/bash\n{line}\n"))
        assert plan.family is Family.OPENMPI
        assert any("solver" in why for why in plan.why)


def test_a_command_that_starts_a_launcher_is_ended_with_the_fix_to_run_it_as_a_script(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/bash\nmpirun -n 2 sleep 20\necho ran $1\n")
    monkeypatch.chdir(tmp_path)
    job = client.submit(MPIJob(name="twice", workers=2, command=("bash", "run.sh", "x"), resources=ROOMY))
    state = job.wait(60)
    assert (state.phase, state.reason) == (Phase.FAILED, "WrongWorld")
    (first, *_) = job.diagnose().findings[0].fixes
    assert first.patch == {"script": "run.sh", "command": [], "args": ["x"]}
    (tmp_path / "run.sh").write_text("#!/bin/bash\nmpirun -n 2 true\necho ran $1\n")
    again = succeeded(client, job.spec.replace(name="once", **first.patch))
    assert launcher_lines(again) == ["ran x"]


def test_modules_stand_for_what_the_settings_say(settings: Settings) -> None:
    text = """#!/bin/bash
module load tools/1 && echo "$TOOLS_HOME ${PATH%%:*}"
ml tools/2 other/3
echo "$TOOLS_HOME"
mpirun -n 1 sh -c 'echo rank of $TOOLS_HOME'
"""
    known = {
        "tools/1": ModuleSetting(env={"TOOLS_HOME": "/one", "PATH": "$TOOLS_HOME/bin:$PATH"}),
        "tools/2": ModuleSetting(env={"TOOLS_HOME": 'a "b" $(c) `d`'}),
    }
    with emptied_client(msgspec.structs.replace(settings, modules=known)) as client:
        job = succeeded(client, script_job("modules", text, workers=1, slots=1))
        lines = launcher_lines(job)
        assert lines[0] == "/one /one/bin"
        assert 'a "b" $(c) `d`' in lines
        (told,) = [line for line in lines if "environment modules are not available" in line]
        assert "module load other/3" in told
        assert said(job) == {0: ['rank of a "b" $(c) `d`']}


def test_steps_are_accounted_with_their_memory_and_listed_as_sacct_does(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hungry = "python -c 'import time; x = bytearray(64 << 20); time.sleep(1)'"
    text = f"#!/bin/sh\nmpirun -n 2 {hungry}\nmpirun -n 1 sh -c 'exit 4'\nexit 0\n"
    job = succeeded(client, script_job("books", text, workers=1))
    first, second = job.state().steps
    assert first.peak_bytes > 2 * (64 << 20)
    (account,) = client.accounts(names=("books",)).items
    assert account.steps == (first, second)
    rows = build.step_accounts(account)
    assert [(one.ref.name, one.phase, one.exit_code, one.ranks) for one in rows] == [
        ("books.0", Phase.SUCCEEDED, 0, 2), ("books.1", Phase.FAILED, 4, 1),
    ]  # fmt: skip
    monkeypatch.setenv("MPIJOB_HOME", settings.home)
    with pytest.raises(SystemExit) as ended:
        cli.main(["acct", "books", "--steps", "--format", "name,state,exit,ranks"], prog_name="mpijob")
    assert not ended.value.code
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[1:] == [
        ["books", "Succeeded", "0", "2"], ["books.0", "Succeeded", "0", "2"], ["books.1", "Failed", "4", "1"],
    ]  # fmt: skip
