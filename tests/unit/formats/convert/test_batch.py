"""Directives of Slurm and PBS, option by option: the field that each becomes, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mpijob.client.convert.convert_jobs import Conversion, FieldOutcome, Stage, convert
from mpijob.formats.convert.header import units
from mpijob.model import MPIJob, Resources, Retry, Signal, Topology, WorkerGroup

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
        ("-n 4", 1, 4, None),
        ("-n 8", 1, 8, None),
        ("-n 16", 2, 8, None),
        ("-n 17", 3, 6, 17),
        ("-n64", 8, 8, None),
        ("--tasks=4", 1, 4, None),
        ("-n 16 --gres=gpu:2", 1, 16, None),
    ],
)
def test_nodes_and_tasks_become_workers_slots_and_ranks(
    head: str, workers: int, slots: int, ranks: int | None
) -> None:
    assert values(slurm(head).jobs[0], "workers", "slots", "ranks") == (workers, slots, ranks)


@pytest.mark.parametrize(
    ("head", "cpu", "memory", "gpu"),
    [
        ("-N 2 -c 4 --ntasks-per-node=2", "8", "none", 0),
        ("-N 2 --mem=16G", "1", "16Gi", 0),
        ("-N 2 --mem=4000", "1", "4000Mi", 0),
        ("-N 1 -n 4 --mem-per-cpu=2G", "4", "8Gi", 0),
        ("-N 2 --gres=gpu:4", "1", "none", 4),
        ("-n 2 --gres=gpu:2", "2", "none", 2),
        ("-N 2 --gres=gpu", "1", "none", 1),
        ("-N 2 --gpus=8", "1", "none", 4),
        ("-N 2 --ntasks-per-node=2 --gpus-per-task=2", "2", "none", 4),
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


def test_where_workers_run_is_kept_as_far_as_there_are_words() -> None:
    job = slurm("-N 2\n-x node[01-03],gpu7\n--switches=1").jobs[0]
    assert job.placement.exclude_nodes == ("node01", "node02", "node03", "gpu7")
    assert job.placement.topology is Topology.PACKED_RACK


@pytest.mark.parametrize(
    "head",
    [
        "-o out.txt", "--qos=long", "-C haswell", "-w node1", "--reservation=x", "--mail-type=END", "-b now+1hour",
        "-H", "-d afterok:1", "--exclusive", "--nice=5", "-L matlab:1", "--tmp=10G", "-D /work", "--mem=0",
        "--unheard-of=1", "--gres=shard:1", "--array=0-1%1", "--signal=KILL@1", "--cpu-bind=mask_cpu:0xf",
        "-m cyclic", "-O", "-i in.txt",
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
    assert one.jobs[0].env == {
        "SLURM_ARRAY_TASK_ID": "1",
        "SLURM_ARRAY_TASK_COUNT": "4",
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "20",
    }


@pytest.mark.parametrize("head", ["--array=x", "--array=0-5000", "--nodes=many", "--ntasks=$N"])
def test_what_cannot_be_known_blocks(head: str) -> None:
    assert slurm(head).stage is Stage.BLOCKED


def test_a_directive_of_slurm_begins_its_line_and_one_of_pbs_need_not() -> None:
    (one,) = convert("#!/bin/bash\n#SBATCH -n 2\n  #SBATCH --mem=4G\nsrun ./a\n", file="x.sbatch")
    assert one.jobs[0].resources.memory == "none"
    (one,) = convert("#!/bin/bash\n  #PBS -l select=3\nmpirun ./a\n", file="x.pbs")
    assert one.jobs[0].workers == 3


@pytest.mark.parametrize(
    ("system", "mark", "late"), [(slurm, "#SBATCH", "-N 8"), (pbs, "#PBS", "-l nodes=8")]
)
def test_directives_behind_the_first_command_have_no_effect_and_are_told_once(
    system: Callable[[str, str], Conversion], mark: str, late: str
) -> None:
    one = system("-N x", f"echo\n{mark} {late}\n{mark} {late}")
    assert one.jobs[0].workers == 1
    (told,) = [entry for entry in one.entries if entry.field == mark]
    assert ("2 directives" in told.value, told.line > 2, bool(told.todo)) == (True, True, True)


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("-n 8\n-R span[ptile=4]", {"workers": 2, "slots": 4}),
        ("-n 4\n-R 'span[hosts=1] rusage[mem=4000]'", {"workers": 1, "slots": 4}),
        ("-n 6", {"workers": 1, "slots": 6}),
        ("-n 2 -W 1:30", {"deadline_seconds": 5400.0}),
        ("-n 2 -W 90", {"deadline_seconds": 5400.0}),
        ("-n 2 -J Big_Run", {"name": "big-run", "env": {"LSB_JOBNAME": "Big_Run"}}),
        ('-n 2 -w done("prep_a")', {"after": ("prep-a",)}),
        ("-n 2 -q short -P team", {"queue": "short", "cost": {"project": "team"}}),
    ],
)
def test_directives_of_lsf_become_fields(head: str, fields: dict[str, object]) -> None:
    text = "".join(f"#BSUB {line}\n" for line in head.split("\n"))
    (one,) = convert(f"#!/bin/bash\n{text}mpirun ./a\n", file="x.lsf")
    assert one.source == "LSF script"
    assert {field: getattr(one.jobs[0], field) for field in fields} == fields


def test_memory_gpus_and_an_array_of_lsf_become_fields() -> None:
    head = '#BSUB -n 4 -J arr[1-3]%2 -M 2GB -gpu "num=2:mode=shared"'
    (one,) = convert(f"#!/bin/bash\n{head}\nmpirun ./a\n", file="x.lsf")
    assert (one.jobs[0].resources.memory, one.jobs[0].resources.gpu) == ("8Gi", 2)
    assert one.values == {"env.LSB_JOBINDEX": ("1", "2", "3")}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-l walltme=01:00:00", "did you mean walltime?"),
        ("-l select=2:ncpu=4", "did you mean ncpus?"),
        ("-l select=2:mpiproc=4", "did you mean mpiprocs?"),
    ],
)
def test_a_misspelt_resource_of_pbs_blocks_as_an_option_of_slurm_does(line: str, told: str) -> None:
    one = pbs(line)
    assert one.stage is Stage.BLOCKED
    assert told in one.blockers[0]


@pytest.mark.parametrize(
    "line", ["-l nodes=2:gpu:gold", "-l software=matlab", "-l select=2:vntype=gpu", "-l xyz=1"]
)
def test_another_resource_of_pbs_is_only_told(line: str) -> None:
    assert pbs(line).stage is Stage.CHECK


def test_a_misspelt_directive_of_pbs_blocks() -> None:
    (one,) = convert("#PBS -N x\n#PSB -l walltime=1:00\nmpirun ./a\n", file="x.pbs")
    assert "a directive starts with #PBS" in one.blockers[0]


def test_mail_to_an_address_leaves_nothing_to_do() -> None:
    one = slurm("-J flow -N 2 -n 2 --mem=1G --mail-type=END,FAIL --mail-user=me@here.org")
    assert [each.todo for each in one.entries if "mail" in each.field] == ["", ""]
    assert one.stage is Stage.READY


def test_the_default_of_sbatch_is_told_where_the_script_says_nothing() -> None:
    assert fate(slurm("-N 2"), "--export") is FieldOutcome.CHANGED
    assert fate(slurm("-N 2 --export=NONE"), "--export") is FieldOutcome.EXACT


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#SBATCH --node=2", "did you mean --nodes?"),
        ("#SBATCH --ntask-per-node=2", "did you mean --ntasks-per-node?"),
        ("#SBTACH --nodes=2", "a directive starts with #SBATCH"),
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
        ("-l select=2:ncpus=4", 2, 1, "4", "none"),
        ("-l nodes=2:ppn=8", 2, 8, "8", "none"),
        ("-l select=1:mpiprocs=2:mem=4gb+2:mpiprocs=2:mem=4gb", 3, 2, "2", "4Gi"),
    ],
)
def test_chunks_become_workers(head: str, workers: int, slots: int, cpu: str, memory: str) -> None:
    job = pbs(head).jobs[0]
    assert values(job, "workers", "slots") == (workers, slots)
    assert (job.resources.cpu, job.resources.memory) == (cpu, memory)


def test_different_chunks_become_groups_of_workers_in_one_world() -> None:
    job = pbs("-l select=1:mpiprocs=2:mem=4gb+2:mpiprocs=4:mem=2gb:ngpus=1").jobs[0]
    assert values(job, "workers", "slots", "ranks") == (3, 2, None)
    assert job.resources == Resources(cpu="2", memory="4Gi")
    resources = Resources(cpu="4", memory="2Gi", gpu=1)
    assert job.groups == (WorkerGroup(name="chunk-1", workers=2, slots=4, resources=resources),)
    assert job.world == 10


def test_the_components_of_a_heterogeneous_job_become_groups_that_srun_can_name() -> None:
    converted = slurm("-N 3 --ntasks-per-node=4 --mem=32G -p cpu\nhetjob\n-N 1 -n 2 --gres=gpu:2 -p gpu")
    job = converted.jobs[0]
    assert values(job, "workers", "slots", "queue") == (4, 4, "cpu")
    resources = Resources(cpu="2", memory="none", gpu=2)
    assert job.groups == (WorkerGroup(name="het-group-1", workers=1, slots=2, resources=resources),)
    told = {(entry.field, entry.ours) for entry in converted.entries}
    assert {
        ("--nodes", "workers"),
        ("--nodes", "groups[0].workers"),
        ("--gres", "groups[0].resources.gpu"),
    } <= told
    dropped = [entry for entry in converted.entries if entry.field == "--partition" and not entry.ours]
    assert [entry.value for entry in dropped] == ["gpu"], "a job has one queue"


def test_times_sizes_and_lists_are_read_as_batch_systems_write_them() -> None:
    assert [units.seconds(text) for text in ("5", "1:30", "2:00:00", "1-0", "x", "1:2:3:4")] == [
        300.0, 90.0, 7200.0, 86400.0, None, None
    ]  # fmt: skip
    assert [units.clock(each) for each in (59.5, 3600, 90061)] == ["00:01:00", "01:00:00", "1-01:01:01"]
    assert units.hosts("a[1-2]b,c") == ("a1b", "a2b", "c")
    assert units.hosts("a[") is None
    assert units.tasks("0-4:0") is None
