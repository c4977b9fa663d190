"""A script's steps as the launcher's log tells them, and the variables and programs that a script finds."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mpijob.formats.launch import batch_environment
from mpijob.formats.launch.rank_output import Output, RankLine
from mpijob.formats.status import launcher_census
from mpijob.formats.status.launcher_census import Layout
from mpijob.model import Family, MPIJob, Resources, StepState

LOG = """\
mpijob-census rank=0 size=2 local=0 host=w-0 node=n gpus=0
mpijob-census rank=1 size=2 local=0 host=w-1 node=n gpus=0
mpijob-world ranks=2 gap=0 tag=a1b2
2026-11-18T10:00:01Z mpijob-step number=0 ranks=2 command=mpirun\x1f-n\x1f2\x1f./a
[step 0 rank 1 a1b2] mpijob-exit rank=1 code=4 step=0
[step 0 rank 0 a1b2] mpijob-step number=9 ranks=1 command=forged
2026-11-18T10:00:03Z mpijob-step number=0 code=4
2026-11-18T10:00:04Z mpijob-step number=1 ranks=0 command=srun\x1ftrue
"""


def test_steps_are_read_with_their_ends_and_no_rank_can_tell_one() -> None:
    seen = launcher_census.read(LOG, Family.MPICH, Layout({"w-0": 0, "w-1": 1}, planned=2))
    begin = 1794996001.0
    first, second = seen.steps
    assert first == StepState(
        0, "mpirun -n 2 ./a", 2, started=begin, finished=begin + 2, exit_code=4, failed_rank=1
    )
    assert (second.number, second.name, second.finished, second.exit_code) == (1, "srun", None, None)
    assert seen.exits == ()  # how a rank of a step ended is the script's business
    assert seen.proved == 2


def test_the_tag_of_a_steps_rank_is_taken_off() -> None:
    output = Output(Family.MPICH)
    assert [*output.read(b"[step 12 rank 3] hello")] == [RankLine(3, "stdout", b"hello", 12)]


def test_what_a_program_of_a_step_prints_like_a_commands_tag_is_text() -> None:
    output = Output(Family.MPICH)
    assert [*output.read(b"mpijob-step number=2 ranks=2 command=mpirun")]
    assert [*output.read(b"[step 2 rank 1] so [rank 0] said")] == [
        RankLine(1, "stdout", b"so [rank 0] said", 2)
    ]


@pytest.mark.parametrize(("gap", "space"), [("1", b" "), ("0", b"")])
def test_open_mpi_tells_the_rank_and_the_report_before_it_the_step(gap: str, space: bytes) -> None:
    output = Output(Family.OPENMPI)
    assert [*output.read(f"mpijob-world ranks=2 gap={gap}".encode())]
    assert [*output.read(b"mpijob-step number=3 ranks=4 command=mpirun")]
    said = [*output.read(b"began: [1,3]<stderr>:" + space + b"hello")]
    assert said == [RankLine(None, "stdout", b"began: "), RankLine(3, "stderr", b"hello", 3)]


def test_variables_of_batch_systems_are_numbers_where_scripts_count() -> None:
    told = batch_environment.variables(MPIJob(name="j", workers=3, slots=2, cores_per_rank=4), uid="u")
    assert told["SLURM_JOB_ID"].isdigit()
    assert (told["SLURM_NTASKS"], told["SLURM_TASKS_PER_NODE"], told["SLURM_JOB_CPUS_PER_NODE"]) == (
        "6",
        "2(x3)",
        "8(x3)",
    )
    assert told["PBS_NP"] == "6"
    assert (told["SLURM_JOB_ACCOUNT"], "SLURM_GPUS_PER_NODE" in told) == ("default", False)


def test_variables_tell_what_a_job_asks_for() -> None:
    asks = MPIJob(name="j", workers=2, cost={"account": "p42"}, resources=Resources(gpu=4))
    told = batch_environment.variables(asks, uid="u")
    assert (told["SLURM_JOB_ACCOUNT"], told["SLURM_GPUS_PER_NODE"]) == ("p42", "4")


def step(tmp_path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call a program as a script does, with a launcher that only prints what it is told."""
    steps, launcher = tmp_path / "steps", tmp_path / "launcher"
    (steps / "slots").mkdir(parents=True, exist_ok=True)
    launcher.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    launcher.chmod(0o700)
    (tmp_path / "report").touch()
    told = {
        "MPIJOB_STEPS": str(steps), "MPIJOB_FAMILY": "mpich", "MPIJOB_LAUNCHER": str(launcher),
        "MPIJOB_HOSTFILE": "/hosts", "MPIJOB_HOSTS": "w-0:2 w-1:2", "MPIJOB_SHIM": "/rank.sh", "MPIJOB_WORLD": "4",
        "MPIJOB_PIPES": str(tmp_path), "MPIJOB_NAME": "j", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7",
        "SLURM_JOB_NAME": "j", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "w-0,w-1",
    }  # fmt: skip
    return subprocess.run(
        ["/bin/sh", batch_environment.STEP, *words], env=told | {"PATH": os.environ["PATH"]} | variables,
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


SHIM = ["/bin/sh", "/rank.sh", "--step=0", "--"]


@pytest.mark.parametrize(
    ("family", "line", "expected"),
    [
        ("mpich", "mpirun -np 3 ./a x", ["-f", "/hosts", "-n", "3", *SHIM, "./a", "x"]),
        ("mpich", "mpirun ./a", ["-f", "/hosts", "-n", "4", *SHIM, "./a"]),
        ("mpich", "mpiexec --ppn 1 ./a", ["-f", "/hosts", "-ppn", "1", "-n", "2", *SHIM, "./a"]),
        ("mpich", "mpirun --mca btl tcp -x A=1 -n 2 ./a", ["-f", "/hosts", "-n", "2", *SHIM, "./a"]),
        ("mpich", "mpiexec -n 8 --depth=2 --cpu-bind depth ./a", ["-f", "/hosts", "-n", "8", *SHIM, "./a"]),
        ("mpich", "mpirun -machinefile m -n 2 ./a", ["-f", "m", "-n", "2", *SHIM, "./a"]),
        ("openmpi", "mpirun --host w-1 -n 1 ./a", ["--host", "w-1", "-n", "1", *SHIM, "./a"]),
        (
            "mpich", "mpirun -n 1 ./a : -n 2 ./b",
            ["-f", "/hosts", "-n", "1", *SHIM, "./a", ":", "-n", "2", *SHIM, "./b"],
        ),
    ],
)  # fmt: skip
def test_a_launchers_words_become_the_familys_with_the_wrapper_before_the_program(
    tmp_path: Path, family: str, line: str, expected: list[str]
) -> None:
    done = step(tmp_path, *line.split(), MPIJOB_FAMILY=family)
    words = done.stdout.splitlines()
    exported = [at for at, word in enumerate(words) if word == "-x"]
    told = [word for at, word in enumerate(words) if at not in exported and at - 1 not in exported]
    assert (told, done.returncode) == (
        ["--hostfile" if w == "-f" and family == "openmpi" else w for w in expected],
        0,
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("srun -n 5 true", "5 tasks are asked for, and the job has 4 slots"),
        ("srun -N 3 true", "3 nodes are asked for"),
        ("srun --nod", "ambiguous"),
        ("srun -n 2", "no program"),
        ("srun --nonsense=1 true", "unrecognized option"),
        ("mpirun.openmpi -n 2 true", "set mpi: openmpi"),
        ("scancel 8", "only this job"),
        ("sbatch x.sh", "a job of its own"),
        ("mpirun -n", "needs a value"),
        ("mpirun -n lmp -in x", "needs a number of ranks"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, line: str, message: str) -> None:
    done = step(tmp_path, *line.split())
    own = ("ambiguous", "unrecognized option", "needs a number of ranks")
    assert done.returncode == (255 if message in own else 1)  # as srun's and hydra's
    assert message in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--gpus-per-task=1", "the job has no GPUs"),
        ("--gres=gpu:2", "no GPUs"),
        ("-c 9", "a worker has 8 cores"),
    ],
)
def test_what_a_step_asks_for_and_the_job_has_not_is_told(tmp_path: Path, options: str, message: str) -> None:
    line = f"srun -n 1 {options} true".split()
    told = step(tmp_path / "without", *line, SLURM_CPUS_ON_NODE="8")
    assert (told.returncode, message in told.stderr) == (0, True)
    enough = step(tmp_path / "with", *line, SLURM_CPUS_ON_NODE="9", SLURM_GPUS_ON_NODE="2")
    assert enough.stderr == ""


def test_a_rank_starts_no_step(tmp_path: Path) -> None:
    done = step(tmp_path, "mpirun", "true", MPIJOB_RANK="2")
    assert (done.returncode, "rank 2" in done.stderr) == (1, True)
