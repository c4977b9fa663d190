"""A script that is called ready runs as it is; of any other the report says what is to do, and with which command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli_support import Cli

from mpijob.backends import code_upload as along
from mpijob.client.convert.convert_jobs import Conversion, FieldEntry, FieldOutcome, Stage, convert
from mpijob.formats.jobfile import jobfile_reader
from mpijob.model import Family

pytestmark = pytest.mark.req("C-hpc", "D-migrate")


def slurm(body: str, head: str = "-J flow -N 2 -n 4", **options: Any) -> Conversion:
    (one,) = convert(f"#!/bin/bash\n#SBATCH {head}\n{body}\n", file="flow.sbatch", **options)
    return one


def entry(one: Conversion, field: str, fate: FieldOutcome = FieldOutcome.DROPPED) -> FieldEntry:
    return next(each for each in one.entries if each.field == field and each.fate is fate)


@pytest.mark.parametrize(
    ("lines", "lines_of_script"),
    [
        ("mpicc -o heat heat.c", ["  mpicc -o heat heat.c || exit", "once prepare_1 || exit"]),
        ("make || exit 1", ["  make || exit 1"]),
        ("cd src && make -j $(nproc) 2>&1 | tee log\ncd ..", ["cd src", "  make -j $(nproc) 2>&1 | tee log || exit"]),
        ("cp $DATA/in.nc .\ntar xzf /data/m.tgz\nrm -f old*", ["  tar xzf /data/m.tgz || :", "  rm -f old* || :"]),
        ("mkdir -p out && gfortran -O2 -o heat heat.f90", ["  mkdir -p out && gfortran -O2 -o heat heat.f90 || exit"]),
    ],
)  # fmt: skip
def test_lines_that_make_files_ready_stay_in_the_job_that_runs_them(
    lines: str, lines_of_script: list[str]
) -> None:
    one = slurm(f"{lines}\nmpirun -n 4 ./heat")
    (job,) = one.jobs
    written = job.code.files["rank.sh"].split("\n")
    assert [line for line in lines_of_script if line not in written] == []
    assert (job.world, written[-2]) == (4, "exec ./heat")
    assert 'mkdir "$mark"' in job.code.files["rank.sh"], "one rank does it, the others wait"


@pytest.mark.parametrize(
    "line",
    ["python make_input.py", "cp mesh /archive/", "rm -rf $SCRATCH/out", "tar czf /data/x.tgz .", "mv a ../b",
     "make > /logs/build", "gcc a.c &", "if true; then ./grid; fi"],
)  # fmt: skip
def test_lines_that_do_more_stay_jobs_of_their_own(line: str) -> None:
    assert [job.world for job in slurm(f"{line}\nsrun ./a").jobs] == [1, 4]


def test_a_program_that_is_built_and_started_in_one_line_is_one_job() -> None:
    (job,) = slurm("cd src && make 2> log && mpirun -n 4 ./heat").jobs
    assert "  make 2> log || exit\n" in job.code.files["rank.sh"]


def test_a_script_that_only_builds_is_still_a_job() -> None:
    (job,) = slurm("make -j 4").jobs
    assert job.command == ("make", "-j", "4")


def test_all_jobs_of_a_script_have_one_mpi_library_and_the_report_says_why() -> None:
    one = slurm("python prepare.py\nmpirun --mca btl tcp,self ./heat")
    assert [job.mpi for job in one.jobs] == [Family.OPENMPI, Family.OPENMPI]
    assert entry(one, "mpirun --mca", FieldOutcome.CHANGED).ours == "mpi: openmpi"
    assert slurm("mpirun --bind-to core --map-by node ./heat").jobs[0].mpi is Family.AUTO


def test_jobs_that_hand_files_on_are_told_the_volume_to_write() -> None:
    one = slurm("srun ./a\nsrun ./b")
    todo = entry(one, "script", FieldOutcome.CHANGED).todo
    volume = todo[todo.index("volumes:") : todo.index("]") + 1]
    assert jobfile_reader.read(f"{one.texts[0]}{volume}\n").volumes[0].mount == "/shared"
    assert one.stage is Stage.CHECK


@pytest.mark.parametrize(
    "line", ["srun ./a $DATA_DIR/x", "srun bash -c 'ls $DATA_DIR'", "DIR=$DATA_DIR/x\nsrun ./a"]
)
def test_a_variable_that_nobody_sets_is_to_do_with_the_way_to_give_it(line: str) -> None:
    one = slurm(line)
    told = entry(one, "$DATA_DIR")
    assert (one.stage, told.line) == (Stage.CHECK, 3)
    assert "of your shell only PATH" in told.note
    assert "--env DATA_DIR" in told.todo


@pytest.mark.parametrize(
    "line",
    [
        "export DATA_DIR=/x\nsrun ./a $DATA_DIR",
        "DATA_DIR=/x\nsrun ./a ${DATA_DIR:-/tmp} $HOME",
        "for d in a b; do ./x $d; done",
    ],
)
def test_a_variable_that_is_set_is_not_told(line: str) -> None:
    assert [each.field for each in slurm(line).entries if each.field.startswith("$")] == []


@pytest.mark.parametrize("line", ["srun python train.py", "srun python -m mypkg.train"])
def test_a_variable_that_the_program_itself_asks_for_is_told(tmp_path: Path, line: str) -> None:
    for name in ("train.py", "mypkg/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('import os\nprint(os.environ["DATA_DIR"], os.environ.get("ELSE", ""))\n')
    one = slurm(line, folder=str(tmp_path))
    assert "--env DATA_DIR" in entry(one, "$DATA_DIR").todo
    assert one.stage is Stage.CHECK
    assert slurm(f"export DATA_DIR=/x\n{line}", folder=str(tmp_path)).stage is Stage.READY


def test_the_default_of_sbatch_is_told_where_the_script_says_nothing() -> None:
    assert entry(slurm("srun ./a"), "--export", FieldOutcome.CHANGED).value == "(not said: ALL)"
    assert entry(slurm("srun ./a", "-N 2 --export=NONE"), "--export", FieldOutcome.EXACT).value == "NONE"


def test_ready_and_check_are_the_same_words_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = "#!/bin/bash\n#SBATCH -N 2\nsrun ./a $DATA_DIR\n"
    assert "; check: ready when what is to do is done" in Cli()("convert", "-", stdin=script).stderr
    (one,) = json.loads(Cli()("convert", "-", "--report", "json", stdin=script).stdout)
    assert one["stage"] == "check"
    assert "; ready\n" in Cli()("convert", "-", stdin=script.replace(" $DATA_DIR", "")).stderr


@pytest.mark.parametrize(
    "body",
    [
        "srun python -m mypkg.train",
        "cd $SLURM_SUBMIT_DIR\nsrun ./a",
        "srun ./a",
        "srun hostname",
        "python x.py",
    ],
)
def test_the_folder_of_the_script_always_goes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.sbatch").write_text(f"#!/bin/bash\n#SBATCH -J x -N 2\n{body}\n")
    result = Cli()("convert", "x.sbatch", "--out", "moved")
    assert jobfile_reader.read(Path("moved/x.yaml").read_text()).code.path == ".."
    assert "folder → code.path: ..: the script's folder goes along" in result.stderr


@pytest.mark.parametrize("home", [True, False])
def test_a_folder_that_is_too_large_or_the_home_is_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path) if home else "/nowhere")
    if not home:
        monkeypatch.setattr(along, "MOST_FILES", 1)
        for name in ("a", "b"):
            (tmp_path / name).write_text("x")
    one = slurm("srun ./a", folder=str(tmp_path))
    told = [each.note for each in one.entries if "code.include" in each.todo]
    assert ("in your home" if home else "too much to go along") in told[0]
    assert one.stage is Stage.CHECK


def test_of_a_text_alone_no_folder_goes_along_and_that_is_told() -> None:
    one = slurm("srun ./a", moved=None)
    assert one.jobs[0].code.path == ""
    assert "no file goes along" in entry(one, "folder").note
    assert slurm("srun hostname", moved=None).stage is Stage.READY


@pytest.mark.parametrize(
    ("directive", "command"),
    [
        ("--array=0-3", "mpijob array -f moved/x.yaml --values env.SLURM_ARRAY_TASK_ID=0,1,2,3"),
        ("-d afterok:17", "mpijob run -f moved/x.yaml --after FIRST"),
        (
            "--array=0-1 -d afterok:17",
            "mpijob array -f moved/x.yaml --after FIRST --values env.SLURM_ARRAY_TASK_ID=0,1",
        ),
    ],
)
def test_one_command_runs_an_array_or_a_job_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directive: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.sbatch").write_text(f"#!/bin/bash\n#SBATCH -J x -N 2 {directive}\nsrun hostname\n")
    told = Cli()("convert", "x.sbatch", "--out", "moved").stderr
    assert [line for line in told.splitlines() if "mpijob array -f" in line or "mpijob run -f" in line] == [
        f"  run it: {command}"
    ]
    cli = Cli()
    cli.ok("create", "first", "--workers", "2", "--", "true")
    words = command.replace("FIRST", "first").split()[1:]
    assert cli(*words).exit_code == 0, "the command that is told works"


def test_one_command_runs_the_several_jobs_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.sbatch").write_text("#!/bin/bash\n#SBATCH -J x -N 2\nsrun hostname\nsrun date\n")
    told = Cli()("convert", "x.sbatch", "--out", "moved").stderr.splitlines()
    assert told[-1] == "  run it: mpijob run -f moved/x-1.yaml -f moved/x-2.yaml"
    assert Cli()("convert", "x.sbatch").stderr.splitlines()[-1] == "  run it: mpijob run -f FILE"
    assert Cli()(*told[-1].split()[3:]).exit_code == 0, "the command that is told works"


def test_an_array_of_several_jobs_that_wait_for_each_other_is_blocked() -> None:
    one = slurm("srun ./a\nsrun ./b", "-N 2 --array=0-1")
    assert one.stage is Stage.BLOCKED
    assert "each of an array has a name of its own" in one.blockers[0]


def test_several_batch_scripts_do_not_go_into_one_stream(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(
        "name: a\nworkers: 2\ncommand: [hostname]\n---\nname: b\nworkers: 2\ncommand: [hostname]\n"
    )
    result = Cli()("convert", str(jobs), "--to", "sbatch")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "these are 2 jobs, and a batch script is one: --out DIR" in result.stderr
    Cli().ok("convert", str(jobs), "--to", "sbatch", "--out", str(tmp_path))
    assert (tmp_path / "a.sbatch").read_text().count("#!/bin/bash") == 1


def test_a_file_that_says_otherwise_is_not_written_over(tmp_path: Path) -> None:
    script = tmp_path / "x.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -J x -N 2\nsrun ./a\n")
    words = ("convert", str(script), "--out", str(tmp_path))
    Cli().ok(*words)
    Cli().ok(*words)
    mine = (tmp_path / "x.yaml").read_text() + "env: {DATA_DIR: /data}\n"
    (tmp_path / "x.yaml").write_text(mine)
    refused = Cli()(*words)
    assert refused.exit_code == 2
    assert "x.yaml would be written over, and says otherwise now: --overwrite" in refused.stderr
    assert (tmp_path / "x.yaml").read_text() == mine
    Cli().ok(*words, "--overwrite")
    assert "DATA_DIR" not in (tmp_path / "x.yaml").read_text()


@pytest.mark.parametrize(
    "line",
    ['eval "$(conda shell.bash hook)"', "eval \"$(/opt/conda/bin/conda 'shell.bash' 'hook')\"", "mamba activate x",
     'eval "$(micromamba shell hook --shell bash)"', "source $(conda info --base)/etc/profile.d/conda.sh",
     ". /etc/profile.d/modules.sh", "eval `modulecmd bash load gcc`", "module load gcc || true",
     '__conda_setup="$(conda shell.bash hook)"\nif [ $? -eq 0 ]; then\n eval "$__conda_setup"\nfi'],
)  # fmt: skip
def test_lines_for_environments_of_a_site_are_left_out_and_told(line: str) -> None:
    one = slurm(f"{line}\nsrun ./a", "-N 2 --gres=gpu:1")
    assert len(one.jobs) == 1
    assert any("modules and environments of a site" in each.note for each in one.entries)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-l walltme=01:00:00", "walltime is one"),
        ("-l select=2:ncpu=4", "ncpus is one"),
        ("-l select=2:mpiproc=4", "mpiprocs is one"),
    ],
)
def test_a_misspelt_resource_of_pbs_blocks_as_an_option_of_slurm_does(line: str, told: str) -> None:
    (one,) = convert(f"#PBS -N x\n#PBS {line}\nmpirun ./a\n", file="x.pbs")
    assert one.stage is Stage.BLOCKED
    assert told in one.blockers[0]


@pytest.mark.parametrize(
    "line", ["-l nodes=2:gpu:gold", "-l software=matlab", "-l select=2:vntype=gpu", "-l xyz=1"]
)
def test_another_resource_of_pbs_is_only_told(line: str) -> None:
    (one,) = convert(f"#PBS -N x\n#PBS {line}\nmpirun ./a\n", file="x.pbs")
    assert one.stage is Stage.CHECK


def test_a_misspelt_directive_of_pbs_blocks() -> None:
    (one,) = convert("#PBS -N x\n#PSB -l walltime=1:00\nmpirun ./a\n", file="x.pbs")
    assert "a directive begins with #PBS" in one.blockers[0]


def test_mail_is_told_for_success_and_failure() -> None:
    one = slurm("srun ./a", "-N 2 --mail-type=END,FAIL --mail-user=me@here")
    assert [each.todo.partition(";")[0] for each in one.entries if "mail " in each.todo] == [
        "nothing, or mpijob wait flow",
        "nothing: who is to get mail stands in the command that sends it",
    ]
    assert one.stage is Stage.READY


@pytest.mark.parametrize(
    ("lines", "todo"),
    [
        ("cd src", ""),
        ("cd src\ncd ..", ""),
        ("cd ../x", "every worker"),
        ("cd /data", "every worker"),
        ("cd $X", "every worker"),
    ],
)
def test_a_folder_that_goes_along_needs_nothing(lines: str, todo: str) -> None:
    told = [each.todo for each in slurm(f"{lines}\nsrun ./a").entries if each.value.startswith("cd ")]
    assert [todo in each and bool(each) == bool(todo) for each in told] == [True] * len(told)


@pytest.mark.parametrize(
    ("head", "value", "slots", "map_by"),
    [
        ("-N 2 -n 4", "ppr:2:node", 2, ""),
        ("-N 2", "ppr:3:node", 3, ""),
        ("-N 2 --ntasks-per-node=4", "ppr:1:node", 4, "ppr:1:node"),
    ],
)
def test_ranks_for_each_node_are_slots_where_that_says_the_same(
    head: str, value: str, slots: int, map_by: str
) -> None:
    (job,) = slurm(f"mpirun --map-by {value} ./a", head).jobs
    assert (job.slots, job.launch.map_by) == (slots, map_by)
    assert job.mpi is (Family.OPENMPI if map_by else Family.AUTO)


def test_where_the_submit_directory_is_is_told_with_its_line_and_the_way_to_results() -> None:
    one = slurm("X=$(date)\nOUT=$SLURM_SUBMIT_DIR/out\nsrun ./a $OUT")
    told = entry(one, "$SLURM_SUBMIT_DIR", FieldOutcome.CHANGED)
    assert told.line == 4
    assert "mpijob artifacts list flow" in told.note
