"""Directives of Slurm and PBS, option by option: the field that each becomes, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from mpijob.client.convert.convert_jobs import Conversion, FieldOutcome, Stage, convert
from mpijob.formats.convert.header import units
from mpijob.model import Family, MPIJob, Retry, Signal, Topology

pytestmark = pytest.mark.req("C-hpc")


def slurm(head: str, body: str = "srun ./a") -> Conversion:
    lines = "".join(f"#SBATCH {line}\n" for line in head.split("\n"))
    (one,) = convert(f"#!/bin/bash\n{lines}{body}\n", file="script.sbatch")
    return one


def pbs(head: str, body: str = "mpirun ./a") -> Conversion:
    lines = "".join(f"#PBS {line}\n" for line in head.split("\n"))
    (one,) = convert(f"{lines}{body}\n", file="script.pbs")
    return one


def fate(one: Conversion, field: str) -> FieldOutcome:
    return next(entry.fate for entry in one.entries if entry.field == field)


def values(job: MPIJob, *fields: str) -> tuple[Any, ...]:
    return tuple(getattr(job, field) for field in fields)


@pytest.mark.parametrize(
    ("head", "workers", "slots", "ranks"),
    [
        ("-N 4", 4, 1, None),
        ("-N 4 -n 8", 4, 2, None),
        ("-N 4 -n 7", 4, 2, 7),
        ("--nodes=2 --ntasks-per-node 3", 2, 3, None),
        ("--nodes=2-4", 4, 1, None),
        ("-n 6 --ntasks-per-node=2", 3, 2, None),
        ("-n 1", 1, 1, None),
        ("-n 4", 2, 2, None),
        ("-n 16", 2, 8, None),
        ("-n 17", 3, 6, 17),
        ("-n64", 8, 8, None),
    ],
)
def test_nodes_and_tasks_become_workers_slots_and_ranks(
    head: str, workers: int, slots: int, ranks: int | None
) -> None:
    assert values(slurm(head).jobs[0], "workers", "slots", "ranks") == (workers, slots, ranks)


@pytest.mark.parametrize(
    ("head", "cpu", "memory", "gpu"),
    [
        ("-N 2 -c 4 --ntasks-per-node=2", "8", "1Gi", 0),
        ("-N 2 --mem=16G", "1", "16Gi", 0),
        ("-N 2 --mem=4000", "1", "4000Mi", 0),
        ("-N 1 -n 4 --mem-per-cpu=2G", "4", "8Gi", 0),
        ("-N 2 --gres=gpu:4", "1", "1Gi", 4),
        ("-N 2 --gres=gpu", "1", "1Gi", 1),
        ("-N 2 --gpus=8", "1", "1Gi", 4),
        ("-N 2 --ntasks-per-node=2 --gpus-per-task=2", "2", "1Gi", 4),
        ("-N 2 --gpus-per-node=v100:2 --mem-per-gpu=10G", "1", "20Gi", 2),
    ],
)
def test_what_a_node_has_is_what_a_worker_has(head: str, cpu: str, memory: str, gpu: int) -> None:
    found = slurm(head).jobs[0].resources
    assert (found.cpu, found.memory, found.gpu) == (cpu, memory, gpu)


@pytest.mark.parametrize(
    ("head", "field", "value"),
    [
        ("-J my-job", "name", "my-job"),
        ("--time=30", "deadline_seconds", 1800.0),
        ("--time=1-2:03:04", "deadline_seconds", 93784.0),
        ("--time=10:30", "deadline_seconds", 630.0),
        ("--signal=USR2@60", "signal", Signal(name="USR2", seconds_before=60.0)),
        ("--signal=B:10@60", "signal", Signal(name="USR1", seconds_before=60.0)),
        ("--requeue", "retry", Retry(limit=1)),
        ("-p Fast.Lane", "queue", "fast.lane"),
        ("--account=p1 --wckey=w", "cost", {"account": "p1", "wckey": "w"}),
        ("--comment='two words'", "description", "two words"),
        ("--container-image=docker://a/b:1", "image", "a/b:1"),
        ("--export=A=1,B='x y'", "env", {"A": "1", "B": "x y"}),
    ],
)
def test_an_option_becomes_its_field(head: str, field: str, value: object) -> None:
    assert getattr(slurm(f"-N 2\n{head}").jobs[0], field) == value


def test_where_ranks_run_is_kept_as_far_as_there_are_words() -> None:
    job = slurm("-N 2\n-x node[01-03],gpu7\n--switches=1\n-m cyclic").jobs[0]
    assert job.placement.exclude_nodes == ("node01", "node02", "node03", "gpu7")
    assert (job.placement.topology, job.launch.map_by) == (Topology.PACKED_RACK, "node")


@pytest.mark.parametrize(
    "head",
    [
        "-o out.txt", "--qos=long", "-C haswell", "-w node1", "--reservation=x", "--mail-user=a@b", "-b now+1hour",
        "-H", "-d afterok:1", "--exclusive", "--nice=5", "-L matlab:1", "--tmp=10G", "-D /work", "--mem=0",
        "--unheard-of=1", "--gres=shard:1", "--array=0-1%1", "--signal=KILL@1", "--cpu-bind=mask_cpu:0xf",
    ],
)  # fmt: skip
def test_nothing_is_left_out_in_silence(head: str) -> None:
    one = slurm(f"-N 2\n{head}")
    dropped = [entry for entry in one.entries if entry.fate is FieldOutcome.DROPPED]
    assert len(dropped) == 1
    assert dropped[0].todo
    assert dropped[0].line == 3


@pytest.mark.parametrize(
    "head", ["-t 60", "--requeue", "-p x", "--mem-per-cpu=1G", "--array=0-1", "-A x", "-N 1-2"]
)
def test_a_difference_in_behaviour_is_never_called_exact(head: str) -> None:
    assert [entry.fate for entry in slurm(head).entries if entry.line == 2] == [FieldOutcome.CHANGED]


def test_an_array_is_told_with_the_command_that_runs_it() -> None:
    one = slurm("-N 2\n-a 1-9:4,20%2", "srun ./a $SLURM_ARRAY_TASK_ID")
    assert one.values == {"env.SLURM_ARRAY_TASK_ID": ("1", "5", "9", "20")}
    assert one.jobs[0].env == {"SLURM_ARRAY_TASK_ID": "1"}


@pytest.mark.parametrize("head", ["--array=x", "--array=0-5000", "--nodes=many", "--ntasks=$N"])
def test_what_cannot_be_known_blocks(head: str) -> None:
    assert slurm(head).stage is Stage.BLOCKED


def test_a_directive_behind_the_first_command_has_no_effect_as_in_slurm() -> None:
    one = slurm("-N 2", "srun ./a\n#SBATCH -N 8")
    assert one.jobs[0].workers == 2


@pytest.mark.parametrize(
    ("line", "command", "ranks"),
    [
        ("srun -n 2 ./a x", ("./a", "x"), 2),
        ("srun -n2 --mpi=pmix ./a", ("./a",), 2),
        ("exec srun ./a 'x y'", ("./a", "x y"), None),
        ("mpirun ./a", ("./a",), None),
        ("mpirun -np $SLURM_NTASKS ./a", ("./a",), None),
        ("/opt/ompi/bin/mpirun --hostfile h -x A -x B=1 ./a -n 9", ("./a", "-n", "9"), None),
        ("mpiexec -n 3 ./a", ("./a",), 3),
        ("horovodrun -np 4 python t.py", ("python", "t.py"), None),
        ("srun ./a | tee log", ("./a",), None),
        ("srun ./a || exit 1", ("./a",), None),
        ("OMP_NUM_THREADS=2 srun ./a", ("./a",), None),
        ("ibrun ./a", ("./a",), None),
    ],
)
def test_a_launch_line_gives_its_program(line: str, command: tuple[str, ...], ranks: int | None) -> None:
    (job,) = slurm("-N 2 --ntasks-per-node=2", line).jobs
    assert (job.command, job.ranks) == (command, ranks)


def test_options_of_mpirun_become_launch_options() -> None:
    line = "mpirun --map-by ppr:1:socket --bind-to core --mca btl tcp,self --oversubscribe -x A=1 --odd ./a"
    job = slurm("-N 2 -n 4", line).jobs[0]
    assert (job.launch.map_by, job.launch.bind_to) == ("ppr:1:socket", "core")
    assert job.launch.settings == {"btl": "tcp,self"}
    assert job.launch.flags == ("--oversubscribe", "--odd")
    assert (job.mpi, job.env) == (Family.OPENMPI, {"A": "1"})


def test_several_programs_of_one_launch_line_are_programs_of_one_world() -> None:
    (job,) = slurm("-N 2 -n 4", "mpirun -n 1 ./master : -n 3 ./worker x").jobs
    assert [(one.ranks, one.command) for one in job.programs] == [(1, ("./master",)), (3, ("./worker", "x"))]


def test_a_table_of_programs_that_the_script_writes_is_read() -> None:
    body = "cat > p.conf <<'E'\n# rank program\n0 ./master 'a b'\n1-3 ./worker\nE\nsrun --multi-prog p.conf"
    one = slurm("-N 2 -n 4", body)
    (job,) = one.jobs
    assert one.stage is Stage.READY
    assert [(each.ranks, each.command) for each in job.programs] == [
        (1, ("./master", "a b")),
        (3, ("./worker",)),
    ]


@pytest.mark.parametrize("table", ["1-3 ./a", "0,2 ./a\n1 ./b", "* ./a", "0 ./a %t", "0 ./a 'x", ""])
def test_a_table_of_programs_that_a_job_cannot_say_blocks(table: str) -> None:
    body = f"cat > p.conf <<'E'\n{table}\nE\nsrun --multi-prog p.conf"
    assert slurm("-N 2 -n 4", body).stage is Stage.BLOCKED


@pytest.mark.parametrize(
    "body",
    [
        "for i in 1 2; do srun ./a $i; done",
        "if [ -f x ]; then srun ./a; fi",
        "srun ./a | ./b",
        "srun --multi-prog conf",
        "srun --pty bash",
        "srun -n $N ./a",
        "srun ./a $SLURM_JOB_NODELIST",
        "HOSTS=$(scontrol show hostnames)\nsrun ./a",
        "sbatch next.sbatch\nsrun ./a",
        "echo nothing",
    ],
)
def test_what_a_job_cannot_say_blocks_with_what_to_do(body: str) -> None:
    one = slurm("-N 2", body)
    assert one.stage is Stage.BLOCKED
    assert [entry.todo for entry in one.entries if entry.blocks]


def test_lines_around_launch_lines_are_jobs_in_their_order() -> None:
    one = slurm("-J j -N 2", "./prepare a\n./prepare b\nsrun ./a\n./tidy")
    assert [job.name for job in one.jobs] == ["j-1", "j-2", "j-3"]
    assert [job.world for job in one.jobs] == [1, 2, 1]
    assert one.jobs[0].code.files["rank.sh"].endswith("./prepare a\n./prepare b\n")
    assert one.jobs[2].command == ("./tidy",)


def test_jobs_of_one_script_wait_for_each_other_as_its_lines_did() -> None:
    body = (
        "python prep.py\nsrun ./a out-$SLURM_JOB_ID &\nsrun ./b &\nwait\nsrun ./c out-$SLURM_JOB_ID\nsrun ./d"
    )
    jobs = slurm("-J flow -N 2", body).jobs
    assert [job.after for job in jobs] == [
        (), ("flow-1",), ("flow-1",), ("flow-2", "flow-3"), ("flow-4",),
    ]  # fmt: skip
    assert (jobs[1].command[-1], jobs[3].command[-1]) == ("out-flow", "out-flow")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#SBATCH --node=2", "--nodes is one"),
        ("#SBATCH --ntask-per-node=2", "--ntasks-per-node is one"),
        ("#SBTACH --nodes=2", "a directive begins with #SBATCH"),
    ],
)
def test_a_misspelt_directive_blocks_with_what_was_meant(line: str, told: str) -> None:
    (one,) = convert(f"#!/bin/bash\n#SBATCH -J x\n{line}\nsrun ./a\n", file="x.sbatch")
    assert one.stage is Stage.BLOCKED
    assert told in one.blockers[0]


@pytest.mark.parametrize(
    ("head", "workers", "slots", "cpu", "memory"),
    [
        ("-l select=4:ncpus=8:mpiprocs=4:mem=16gb", 4, 4, "8", "16Gi"),
        ("-l select=2:ncpus=4", 2, 1, "4", "1Gi"),
        ("-l nodes=2:ppn=8", 2, 8, "8", "1Gi"),
        ("-l select=1:mpiprocs=2:mem=4gb+2:mpiprocs=4:mem=2gb", 3, 4, "4", "4Gi"),
    ],
)
def test_chunks_become_workers(head: str, workers: int, slots: int, cpu: str, memory: str) -> None:
    job = pbs(head).jobs[0]
    assert values(job, "workers", "slots") == (workers, slots)
    assert (job.resources.cpu, job.resources.memory) == (cpu, memory)


def test_times_sizes_and_lists_are_read_as_batch_systems_write_them() -> None:
    assert [units.seconds(text) for text in ("5", "1:30", "2:00:00", "1-0", "x", "1:2:3:4")] == [
        300.0, 90.0, 7200.0, 86400.0, None, None
    ]  # fmt: skip
    assert [units.clock(each) for each in (59.5, 3600, 90061)] == ["00:01:00", "01:00:00", "1-01:01:01"]
    assert units.hosts("a[1-2]b,c") == ("a1b", "a2b", "c")
    assert units.hosts("a[") is None
    assert units.tasks("0-4:0") is None
