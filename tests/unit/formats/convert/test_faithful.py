"""A converted script does what it did; where it cannot, the report says so: nothing differs in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.formats.convert.test_ready import entry, slurm

from mpijob.client.convert.convert_jobs import Conversion, FieldOutcome, Stage, convert

pytestmark = pytest.mark.req("C-hpc", "D-migrate")


def pbs(body: str, head: str = "-N flow -l nodes=2:ppn=4", **options: Any) -> Conversion:
    (one,) = convert(f"#!/bin/bash\n#PBS {head}\n{body}\n", file="flow.pbs", **options)
    return one


def own_script(one: Conversion, at: int = -1) -> str:
    """Return the text of the script that is ours in a job."""
    return one.jobs[at].code.files[one.jobs[at].command[-1]]


def test_a_script_of_the_users_own_keeps_its_name(tmp_path: Path) -> None:
    named = slurm("srun bash rank.sh $D")
    (tmp_path / "rank.sh").write_text("echo mine\n")
    for one in (named, slurm("srun ./all $D", folder=str(tmp_path))):
        (job,) = one.jobs
        assert "rank.sh" not in job.code.files
        assert job.command == ("bash", "mpijob-1-rank.sh")
    assert "exec bash rank.sh $D" in own_script(named)
    (back,) = convert(named.texts[0], to="sbatch")
    assert "cat > rank.sh" not in back.texts[0]


def test_scripts_of_jobs_that_go_back_take_no_file_of_the_user_and_none_of_each_other() -> None:
    there = slurm("X=$HOME\nsrun ./a $X\nsrun ./b $X")
    back = [convert(text, to="sbatch")[0] for text in there.texts]
    for number, one in enumerate(back, start=1):
        assert f"cat > flow-{number}-rank.sh <<" in one.texts[0]
        assert one.texts[0].endswith(f"srun bash flow-{number}-rank.sh\n")
        assert [each.fate for each in one.written if each.field == "command"] == [FieldOutcome.CHANGED]


@pytest.mark.parametrize(
    "line",
    [
        "if [ ! -x heat ]; then echo no; exit 1; fi",
        "if [[ ! -x heat && -n $HOME ]]; then\n  echo no >&2\n  exit 1\nelse\n  mkdir -p out\nfi",
        "[ -x heat ] || exit 1",
        "test -f in.nml || { echo 'no input'; exit 1; }",
        "make || { echo 'it does not build'; exit 1; }",
        'if [ -n "$SLURM_JOB_ID" ]; then\n  cd $SLURM_SUBMIT_DIR\nfi',
        "command -v mpicc > /dev/null || exit 1",
        "[[ -d out ]] || mkdir -p out",
        "if [ -z $MODE ]; then export MODE=fast; fi",
    ],
)
@pytest.mark.parametrize("order", ["{compile}\n{line}", "{line}\n{compile}"])
def test_a_condition_that_only_tests_and_ends_stays_with_the_launch_line(line: str, order: str) -> None:
    one = slurm(order.format(compile="mpicc -o heat heat.c", line=line) + "\nmpirun ./heat")
    assert len(one.jobs) == 1
    assert f"\n{line}\n" in own_script(one).replace("\n  make", "\nmake")
    assert "mpicc -o heat heat.c || exit" in own_script(one)
    assert line.split("\n")[0] in entry_of(one, line.split("\n")[0][:20]).value


def entry_of(one: Conversion, text: str) -> Any:
    return next(each for each in one.entries if each.value.startswith(text))


def test_a_condition_around_a_compiler_is_done_once() -> None:
    one = slurm("if [ ! -x heat ]; then mpicc -o heat heat.c; fi\nmpirun ./heat")
    assert len(one.jobs) == 1
    assert "  if [ ! -x heat ]; then mpicc -o heat heat.c; fi || exit\n" in own_script(one)
    loop = slurm("for f in a b; do\n  cp $DATA/$f.in .\ndone\nmpirun ./heat")
    assert "done || :" in own_script(loop)
    assert len(loop.jobs) == 1


def test_a_condition_that_loads_a_module_is_left_out_and_told() -> None:
    one = slurm("if command -v module; then\n  module load gcc\nfi\nX=$HOME\nsrun ./heat $X")
    assert "# if command -v module; then\n#   module load gcc\n# fi  (left out)\nX=$HOME\n" in own_script(one)
    assert (len(one.jobs), one.stage) == (1, Stage.CHECK)
    assert "modules and environments of a site" in entry(one, "script").note


def test_a_program_is_compiled_where_it_runs_whatever_was_done_before() -> None:
    one = slurm("python mesh.py\nmpicc -o heat heat.c\nmpirun ./heat")
    assert [job.world for job in one.jobs] == [1, 4]
    assert "mpicc" in own_script(one, 1)


def test_every_line_that_another_job_has_is_named_with_that_job() -> None:
    one = slurm("python mesh.py\npython more.py\nsrun ./heat\nfor i in 1 2; do ./plot $i; done")
    told = [(each.line, each.value, each.ours) for each in one.entries if each.ours.startswith("job ")]
    assert told == [
        (3, "python mesh.py", "job flow-1"),
        (4, "python more.py", "job flow-1"),
        (6, "for i in 1 2; do ./plot $i; done", "job flow-3"),
    ]


def test_that_launch_lines_do_not_share_a_directory_is_told_first_with_the_lines_that_mend_it() -> None:
    one = slurm("srun ./write out\nX=$HOME\nsrun ./read $X\n./plot a\n./plot b")
    first = one.entries[0]
    assert (first.fate, one.stage) == (FieldOutcome.CHANGED, Stage.CHECK)
    assert "if flow-2 reads files that flow-1 writes in its directory, it finds nothing" in first.note
    assert """command: [sh, -c, 'cd /shared && exec "$OLDPWD"/write out']""" in first.todo
    assert 'as the last line of rank.sh: cd /shared && exec "$OLDPWD"/read $X' in first.todo
    assert 'in place of the script\'s: cd /shared && "$OLDPWD"/plot a; "$OLDPWD"/plot b' in first.todo
    assert "volumes/default/claim/flow" in first.todo


@pytest.mark.parametrize(
    "asks",
    [
        'os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]',
        'os.environ.get("SLURM_PROCID", 0), os.getenv("SLURM_NTASKS", "1")',
    ],
)
def test_what_a_program_asks_of_the_batch_system_is_set_for_each_rank_and_told(
    tmp_path: Path, asks: str
) -> None:
    (tmp_path / "t.py").write_text(f"import os\nprint({asks})\n")
    for body in ("srun python t.py", "X=$HOME\nsrun python t.py $X"):
        one = slurm(body, folder=str(tmp_path))
        (job,) = one.jobs
        assert 'export SLURM_PROCID="' in job.code.files["rank.sh"]
        assert job.env["SLURM_NTASKS"] == "4"
        assert "$MPIJOB_RANK" in entry(one, "$SLURM_PROCID", FieldOutcome.CHANGED).note
        assert "t.py asks for it" in entry(one, "$SLURM_NTASKS", FieldOutcome.CHANGED).note
        assert not any("--env SLURM" in each.todo for each in one.entries)


def test_what_only_the_batch_system_knows_is_to_do_where_a_program_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text('import os\nprint(os.environ.get("SLURM_NODELIST", ""))\n')
    told = entry(slurm("srun python t.py", folder=str(tmp_path)), "$SLURM_NODELIST")
    assert "MPIJOB_RANK" in told.todo
    assert "--env" not in told.todo


@pytest.mark.parametrize("asks", ['os.environ.get("BETA")', 'os.getenv("BETA")', 'getenv( "BETA" )'])
def test_a_variable_that_is_asked_for_without_a_default_is_told(tmp_path: Path, asks: str) -> None:
    (tmp_path / "t.py").write_text(f"print({asks})\n")
    assert "--env BETA" in entry(slurm("srun python t.py", folder=str(tmp_path)), "$BETA").todo


def test_a_variable_that_any_line_of_the_script_sets_is_set(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text('import os\nprint(os.environ["SEED"], os.environ["SCALE"])\n')
    body = "SEEDS=(3 5)\nexport SEED=${SEEDS[$SLURM_ARRAY_TASK_ID]}\nexport SCALE=$HOME\nsrun python t.py"
    one = slurm(body, "-J flow -N 2 --array=0-1", folder=str(tmp_path))
    assert [each.field for each in one.entries if each.field in ("$SEED", "$SCALE", "$SEEDS")] == []


@pytest.mark.parametrize(
    "body",
    [
        "srun ./a ${FACTOR:-1}",
        "srun ./a ${FACTOR-1}",
        "FACTOR=${FACTOR:-1}\nsrun ./a $FACTOR",
        'export FACTOR="${FACTOR:-1}"\nsrun ./a',
        ": ${FACTOR:=1}\nsrun ./a $FACTOR",
    ],
)
def test_a_default_that_the_users_shell_may_have_overruled_is_told(body: str) -> None:
    one = slurm(body)
    told = [each for each in one.entries if each.field == "$FACTOR"]
    assert [(each.fate, each.line, "--env FACTOR" in each.todo) for each in told] == [
        (FieldOutcome.CHANGED, 3, True)
    ]
    assert one.stage is Stage.READY


def test_a_default_behind_a_value_of_the_script_is_none() -> None:
    one = slurm("FACTOR=$(nproc)\nsrun ./a ${FACTOR:-1}")
    assert not [each for each in one.entries if each.field == "$FACTOR"]


@pytest.mark.parametrize(
    ("counts", "number"),
    [
        ("$(wc -l < $PBS_NODEFILE)", 8),
        ('$(wc -l <"${PBS_NODEFILE}")', 8),
        ("`cat $PBS_NODEFILE | wc -l`", 8),
        ("$(cat $PBS_NODEFILE | wc -l | tr -d ' ')", 8),
        ("`wc -l $PBS_NODEFILE | awk '{print $1}'`", 8),
        ("$(sort -u $PBS_NODEFILE | wc -l)", 2),
        ("$(cat $PBS_NODEFILE | sort | uniq | wc -l)", 2),
        ("$(uniq $PBS_NODEFILE | wc -l)", 2),
    ],
)
def test_the_lines_of_the_list_of_nodes_are_counted_by_the_head(counts: str, number: int) -> None:
    one = pbs(f"cat $PBS_NODEFILE\nNP={counts}\nmpirun -machinefile $PBS_NODEFILE -n $NP ./a $NP")
    (job,) = one.jobs
    assert (one.stage, job.world, job.command) == (Stage.READY, number, ("./a", str(number)))
    assert job.env["NP"] == str(number)


def test_what_else_is_read_from_the_list_of_nodes_blocks() -> None:
    assert pbs("FIRST=$(head -1 $PBS_NODEFILE)\nmpirun ./a $FIRST").stage is Stage.BLOCKED
    assert pbs("N=$(wc -l < hosts)\nmpirun -n $N ./a").stage is Stage.BLOCKED


@pytest.mark.parametrize(
    ("line", "todo"),
    [
        (
            "cp results/sum.dat $HOME/",
            "mpijob artifacts fetch flow results/sum.dat --to $HOME (it keeps its place below: ",
        ),
        ("mkdir -p $HOME/x && mv *.dat $HOME/x", "mpijob artifacts fetch flow --to $HOME/x"),
        (
            "if [ -f sum.dat ]; then cp sum.dat /archive; fi",
            "mpijob artifacts fetch flow sum.dat --to /archive",
        ),
        ("tar czf out.tgz results", "mpijob artifacts fetch flow --to DIRECTORY"),
        ("scp sum.dat me@there:", "mpijob artifacts fetch flow --to DIRECTORY"),
        ("rsync -a out/ there:/data", "mpijob artifacts fetch flow --to DIRECTORY"),
    ],
)
def test_what_brings_results_away_is_left_out_and_told_as_a_fetch(line: str, todo: str) -> None:
    one = slurm(f"mpicc -o heat heat.c\nsrun ./heat\n{line}")
    assert len(one.jobs) == 1
    (told,) = [each for each in one.entries if each.line == 5]
    assert (told.fate, one.stage) == (FieldOutcome.DROPPED, Stage.CHECK)
    assert todo in told.todo


def test_what_brings_results_away_in_the_launch_line_is_left_out_too() -> None:
    one = slurm("srun ./heat && cp sum.dat /archive")
    assert len(one.jobs) == 1
    assert "mpijob artifacts fetch flow sum.dat --to /archive" in entry(one, "script").todo


def test_what_brings_results_away_stays_where_work_or_a_launch_line_stands_between() -> None:
    assert len(slurm("srun ./a\ncp out in\nsrun ./b").jobs) == 3
    assert len(slurm("srun ./a\ncp out in && srun ./b && cp in /archive").jobs) == 3
    assert "cp plot.png /archive" in own_script(slurm("srun ./a\n./plot\ncp plot.png /archive"))


@pytest.mark.parametrize(
    ("behind", "todo"),
    [
        ("> heat.out", "nothing, or mpijob logs flow --no-prefix --stream stdout > heat.out"),
        ("&> heat.out", "nothing, or mpijob logs flow --no-prefix > heat.out"),
        ("2> heat.err", "nothing, or mpijob logs flow --no-prefix --stream stderr > heat.err"),
        ("| tee log.txt", "nothing, or mpijob logs flow --no-prefix | tee log.txt"),
        ("< in.txt", "write launch: {stdin: in.txt} when it is"),
    ],
)
def test_where_a_launch_line_wrote_to_or_read_from_is_told_with_its_like(behind: str, todo: str) -> None:
    assert [each.todo for each in slurm(f"srun ./heat {behind}").entries if each.line == 3] == [todo]
